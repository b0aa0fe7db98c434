package kv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/kv/internal/manifest"
)

// rehearse recovers a trial store to the state and closes it. So everything that the recovery
// reads, and the options, are known to be good before newer states are removed and the
// device is started below their ends. newest is the end of the newest state on the device,
// which is prepared up to there; nothing below is changed.
func (r *recovery) rehearse(newest int64) (err error) {
	st := r.st
	// The state may have been named because the log above it is damaged.
	prepared := device.Prepare(st.dev, newest)
	opts := st.opts
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.Events = EventListener{}
	opts.Events.ensureDefaults()
	trial := newStore(opts)
	trial.checkpointer.manifest, trial.keyHash = st.checkpointer.manifest, st.keyHash
	if snapshots := r.snapshots(&st.checkpointer.manifest); len(snapshots) > 0 {
		p := newPreview(st.dev, snapshots, st.checkpointer.manifest.DeviceTail(r.from))
		defer p.close()
		if err := p.add(snapshots); err != nil {
			return fmt.Errorf("kv: checkpoint %q: %w", r.from.Name, err)
		}
		trial.dev = p
	}
	again := &recovery{st: trial, state: r.state, from: r.from, all: r.all, began: time.Now()}
	again.report.From = r.report.From
	if err = again.load(); err == nil {
		err = trial.unload()
	} else if prepared != nil {
		err = fmt.Errorf("%w; the device, for the newest state at %d: %w", err, newest, prepared)
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	return nil
}

// preview is a device, to be read only, with the log that restoreSnapshots will write.
type preview struct {
	device.Device
	log manifest.RestoredLog // its files are the queues' own
}

func newPreview(dev device.Device, chain []manifest.LogPart, tail int64) *preview {
	return &preview{Device: dev, log: manifest.RestoredLog{Flushed: restoredFrom(dev, chain, tail)}}
}

// add reads the snapshots, oldest first.
func (p *preview) add(chain []manifest.LogPart) error {
	for _, s := range chain {
		if err := p.log.Add(p.Device, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *preview) close() { p.log.Close() }

// NewQueue implements device.Device.
func (p *preview) NewQueue(depth int) (device.Queue, error) {
	below, err := p.Device.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	alone, err := p.Device.NewQueue(1)
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	log := p.log
	log.Files = queueReader{alone}
	return &previewQueue{Queue: below, alone: alone, log: log}, nil
}

// previewQueue answers reads that reach into snapshots at once, and passes other reads on.
type previewQueue struct {
	device.Queue
	alone device.Queue // of log
	log   manifest.RestoredLog
	done  []device.Completion
}

// Read implements device.Queue.
func (q *previewQueue) Read(dst []byte, addr int64, tag uint64) error {
	if addr+int64(len(dst)) <= q.log.Flushed {
		return q.Queue.Read(dst, addr, tag)
	}
	n, err := q.log.ReadAt(dst, addr)
	q.done = append(q.done, device.Completion{Tag: tag, N: n, Err: err})
	return nil
}

// Write implements device.Queue. A rehearsal writes nothing.
func (q *previewQueue) Write(src []byte, addr int64, _ uint64) error {
	return fmt.Errorf("writing %d bytes at %d while the log is only looked at: %w", len(src), addr, errors.ErrUnsupported)
}

// Poll implements device.Queue.
func (q *previewQueue) Poll(done []device.Completion) int {
	n := copy(done, q.done)
	q.done = q.done[n:]
	if n == len(done) {
		return n
	}
	return n + q.Queue.Poll(done[n:])
}

// Wait implements device.Queue.
func (q *previewQueue) Wait(ctx context.Context) error {
	if len(q.done) > 0 {
		return nil
	}
	return q.Queue.Wait(ctx)
}

// Close implements device.Queue.
func (q *previewQueue) Close() error { return errors.Join(q.Queue.Close(), q.alone.Close()) }

// queueReader reads through a queue of its own.
type queueReader struct{ queue device.Queue }

var _ io.ReaderAt = queueReader{}

// ReadAt implements io.ReaderAt.
func (r queueReader) ReadAt(p []byte, addr int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := device.Finish(context.Background(), r.queue, r.queue.Read(p, addr, 0)); err != nil {
		return 0, fmt.Errorf("reading %d bytes at %d: %w", len(p), addr, err)
	}
	return len(p), nil
}
