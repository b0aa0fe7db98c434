package peers

import (
	"context"
	"fmt"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

var bucketName = []byte("records")

type bboltStore struct{ db *bolt.DB }

func openBbolt(opts Options) (Store, error) {
	db, err := bolt.Open(filepath.Join(opts.Dir, "bbolt.db"), 0o644, &bolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	s := &bboltStore{db}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucketName)
		return err
	})
	if err != nil {
		_ = db.Close() // it was not used
		return nil, err
	}
	return s, nil
}

func (s *bboltStore) Write(pairs []Pair) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketName)
		b.FillPercent = 0.9 // keys come in order
		for _, p := range pairs {
			if err := b.Put(p.Key, p.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *bboltStore) Delete(key []byte) error {
	return s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketName).Delete(key) })
}

func (s *bboltStore) NewReader() (Reader, error) { return bboltReader{s.db}, nil }

// bboltReader reads each key in a separate transaction.
type bboltReader struct{ db *bolt.DB }

func (r bboltReader) Get(key, dst []byte) ([]byte, error) {
	found := false
	err := r.db.View(func(tx *bolt.Tx) error {
		if value := tx.Bucket(bucketName).Get(key); value != nil {
			dst, found = append(dst, value...), true
		}
		return nil
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	return dst, err
}

func (bboltReader) Close() error { return nil }

func (s *bboltStore) Scan(from []byte, n int, each func(key, value []byte)) error {
	return s.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketName).Cursor()
		for k, v := c.Seek(from); k != nil && n > 0; k, v = c.Next() {
			each(k, v)
			n--
		}
		return nil
	})
}

// Settle writes dirty pages; bbolt has no background work.
func (s *bboltStore) Settle(context.Context) error {
	if err := s.db.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

func (s *bboltStore) Close() error { return s.db.Close() }
