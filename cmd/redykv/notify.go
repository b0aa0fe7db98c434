package main

import (
	"log/slog"
	"net"
	"os"
)

// notify sends READY=1 or STOPPING=1 to the service manager that started this process, if it
// asks for that (systemd's Type=notify). It logs a failure.
func notify(log *slog.Logger, state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close() // the state has been sent
	}
	if err != nil {
		log.Warn("the service manager was not notified", "state", state, "err", err)
	}
}
