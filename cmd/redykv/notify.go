package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
)

// tell is notify for those who go on in any case.
func tell(log *slog.Logger, state string) {
	if err := notify(state); err != nil {
		log.Warn("nobody was told", "state", state, "err", err)
	}
}

// notify tells the service manager that has started this process, if one has and
// wants to know (systemd's Type=notify), how it is: READY=1 or STOPPING=1.
func notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close() // it has been sent
	}
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	return nil
}
