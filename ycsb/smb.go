package ycsb

import (
	"context"
	"errors"
	"fmt"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/smb"
	"github.com/redykv/redykv/internal/smbd"
)

// openSMB starts a Samba server on this machine and makes a log on it. Release stops the
// server.
func (s *Storage) openSMB(ctx context.Context) (device.Device, error) {
	server, err := smbd.Start(ctx)
	if err != nil {
		return nil, err
	}
	dev, err := smb.Open(ctx, smb.Options{
		Address: server.Address, Share: smbd.ShareName, User: server.User, Password: server.Password,
	})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	s.release = server.Close
	s.Transport, s.Net = string(SMB), "loopback to Samba, share on disk"
	if server.InMemory {
		s.Net = "loopback to Samba, share in memory"
	}
	return dev, nil
}

// checkSMB returns an error if no server can be started.
func checkSMB() error {
	if err := smbd.Available(); err != nil {
		return fmt.Errorf("device %s: %w", SMB, err)
	}
	return nil
}
