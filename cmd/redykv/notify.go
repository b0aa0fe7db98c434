package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
)

// tell calls notify and logs its error.
func tell(log *slog.Logger, state string) {
	if err := notify(state); err != nil {
		log.Warn("nobody was told", "state", state, "err", err)
	}
}

// notify sends READY=1 or STOPPING=1 to the service manager that started this process, if it
// asks for that (systemd's Type=notify).
func notify(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close() // the state has been sent
	}
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	return nil
}
