package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// File descriptors that the server takes besides those of its clients and of the files in --dir: a part for
// the io_uring queues of the store, which take half of all at most, and a few for everything else.
const (
	queueFiles = 192
	otherFiles = 32
)

// clientsWithin returns how many of the wanted clients fit a limit of open files, beside a store that has
// some. A quarter of what is left is for files that the store adds: its log has one for each GiB.
func clientsWithin(limit uint64, wanted, stored int) (int, error) {
	own := min(limit/2, queueFiles) + otherFiles + uint64(stored)
	if limit <= own {
		return 0, fmt.Errorf("the process may open %d files (ulimit -n), and the store needs %d of them: raise the limit", limit, own)
	}
	left := limit - own
	return int(min(uint64(wanted), left-left/4)), nil
}

// fitClients returns the number of clients that the server can have, and logs if these are fewer than
// --max-clients.
func (f *serveFlags) fitClients(log *slog.Logger) (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("getting the limit of open files: %w", err)
	}
	var files []os.DirEntry
	if f.storage.kind == storageSSD {
		var err error
		if files, err = os.ReadDir(f.storage.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("--dir: %w", err)
		}
	}
	n, err := clientsWithin(limit.Cur, f.clients.clients, len(files))
	if err == nil && n < f.clients.clients {
		log.Warn("fewer clients than --max-clients: the process may open few files (ulimit -n)", "clients", n, "max-clients", f.clients.clients, "files", limit.Cur)
	}
	return n, err
}
