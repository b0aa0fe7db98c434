package blob

import (
	"context"
	"errors"
	"time"

	"github.com/redykv/redykv/device"
)

// Status is the state of the bucket, and counters since the device was opened.
type Status struct {
	Catalog  int64     // number of the newest state in the bucket; 0: none yet
	LogEnd   int64     // address up to which the bucket has the log
	Empty    bool      // no upload has ever succeeded, also of earlier processes
	Behind   bool      // something has to be uploaded
	Uploaded time.Time // time of the last successful upload; zero: none yet
	Err      error     // of the last upload; nil if it succeeded
	Segments int       // blobs with parts of the log

	Uploads     uint64 // states stored
	BytesUp     uint64 // read to be uploaded
	BucketReads uint64 // ranges of the log that were read in the bucket
	BytesDown   uint64 // of these
	Retries     uint64 // requests that were tried again
	Repairs     uint64 // reads that the local device failed and the bucket answered
}

// Status returns the state of the bucket.
func (d *Device) Status() Status {
	s := Status{
		Uploads: d.counts.uploads.Load(), BytesUp: d.counts.bytesUp.Load(),
		BucketReads: d.counts.bucketReads.Load(), BytesDown: d.counts.bytesDown.Load(),
		Retries: d.counts.retries.Load(), Repairs: d.counts.repairs.Load(),
	}
	if c := d.catalog.Load(); c != nil {
		s.Catalog, s.Segments = c.Number, len(c.Pieces)
		if len(c.Pieces) > 0 {
			s.LogEnd = c.Pieces[len(c.Pieces)-1].To
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Empty = d.isEmpty()
	s.Behind, s.Uploaded, s.Err = d.up.uploaded < d.changes, d.up.last, d.up.failure
	return s
}

// isEmpty reports whether the bucket has never had a state, as far as is known. The caller holds mu.
func (d *Device) isEmpty() bool {
	c := d.catalog.Load()
	return !d.state.Uploaded && (c == nil || c.Number == 0)
}

// Flush waits until the bucket has everything that was synced and is covered by metadata now.
// It fails if ctx ends or another machine has taken the store.
func (d *Device) Flush(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for want := d.changes; d.up.uploaded < want; {
		switch {
		case d.up.fatal != nil:
			return d.up.fatal
		case d.closed:
			return device.ErrClosed
		}
		d.up.poke()
		news := d.up.news
		d.mu.Unlock()
		select {
		case <-news:
			d.mu.Lock()
		case <-ctx.Done():
			d.mu.Lock()
			return errors.Join(ctx.Err(), d.up.failure)
		}
	}
	return nil
}
