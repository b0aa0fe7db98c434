package durable

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"

	"github.com/redykv/redykv/internal/bench/peers"
	"github.com/redykv/redykv/internal/bench/record"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/ssdtier"
	"github.com/redykv/redykv/ycsb"
)

// store is an open subject.
type store interface {
	// writer returns the function of one goroutine that writes a record durably, and one that
	// ends its use.
	writer() (write func(ctx context.Context, key, value []byte) error, end func() error)
	close() error
}

// open opens a subject with files in a directory of its own.
func (s *Spec) open(subject Subject) (store, error) {
	dir := filepath.Join(s.Dir, string(subject))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	switch subject {
	case Redykv:
		return s.openRedykv(dir)
	case Pebble:
		return openPebble(dir)
	}
	return openDisk(dir)
}

type redykvStore struct{ *kv.Store }

func (s *Spec) openRedykv(dir string) (store, error) {
	ssd, err := ssdtier.Open(dir)
	if err != nil {
		return nil, err
	}
	st, err := kv.Open(kv.Options{Device: ssd, KeySize: ycsb.KeySize, ValueSize: s.ValueSize, Memory: memory, Records: s.Records})
	if err != nil {
		return nil, errors.Join(err, ssd.Close())
	}
	return redykvStore{st}, nil
}

func (r redykvStore) writer() (func(ctx context.Context, key, value []byte) error, func() error) {
	session := r.NewSession()
	return func(ctx context.Context, key, value []byte) error {
		if err := session.Upsert(key, value); err != nil {
			return err
		}
		return session.WaitForCommit(ctx)
	}, session.Close
}

func (r redykvStore) close() error { return r.Close() }

type pebbleStore struct{ db *pebble.DB }

func openPebble(dir string) (store, error) {
	cache := pebble.NewCache(memory)
	defer cache.Unref() // the database holds it
	db, err := pebble.Open(dir, peers.PebbleOptions(cache))
	if err != nil {
		return nil, err
	}
	return pebbleStore{db}, nil
}

func (p pebbleStore) writer() (func(ctx context.Context, key, value []byte) error, func() error) {
	return func(_ context.Context, key, value []byte) error { return p.db.Set(key, value, pebble.Sync) },
		func() error { return nil }
}

func (p pebbleStore) close() error { return p.db.Close() }

// disk is a file that has its space.
type disk struct{ file *os.File }

func openDisk(dir string) (store, error) {
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, diskFile))
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return disk{f}, nil
}

func (d disk) writer() (func(ctx context.Context, key, value []byte) error, func() error) {
	block := make([]byte, diskBlock)
	return func(_ context.Context, key, _ []byte) error {
		if _, err := d.file.WriteAt(block, int64(record.KeyNumber(key)%(diskFile/diskBlock))*diskBlock); err != nil {
			return err
		}
		return syncData(d.file)
	}, func() error { return nil }
}

func (d disk) close() error { return d.file.Close() }
