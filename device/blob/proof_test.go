package blob

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	gcblob "gocloud.dev/blob"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// commit makes the log durable with new metadata, and waits until it is in the bucket.
func commit(t *testing.T, d *Device, meta string) {
	t.Helper()
	if err := errors.Join(d.Sync(), d.WriteMeta("meta", []byte(meta))); err != nil {
		t.Fatal(err)
	}
	flush(t, d)
}

// wantRestored restores a device from the bucket. It must have the metadata and the log.
func wantRestored(t *testing.T, b *gcblob.Bucket, meta string, log []byte) {
	t.Helper()
	d := mustOpen(t, device.NewMemory(), b, testOptions())
	defer closeAll(t, d)
	if err := d.Prepare(int64(len(log))); err != nil { // the bucket stays as it is
		t.Fatal(err)
	}
	if got, err := d.ReadMeta("meta"); err != nil || string(got) != meta {
		testrun.Wrong(t, "metadata %q, %v, want %q", got, err, meta)
	}
	if got, err := read(t, d, len(log), 0); err != nil || !bytes.Equal(got, log) {
		testrun.Wrong(t, "%d bytes of the log: %v, or wrong bytes", len(log), err)
	}
}

// random returns n random bytes.
func random(n int) []byte {
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{5}).Read(content) // never fails
	return content
}

// TestFailedWrite: after a write has failed on the local device and was repeated, the bucket
// holds what it depends on.
func TestFailedWrite(t *testing.T) {
	const page = minSegmentSize / 2
	b := memBucket(t)
	d := mustOpen(t, device.NewFaulty(device.NewMemory(), device.FaultyOptions{FailWrite: 2}), b, testOptions())
	defer closeAll(t, d)
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	content := random(6 * page)
	q, err := d.NewQueue(4)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, q)
	write := func(at int) error {
		return device.Finish(t.Context(), q, q.Write(content[at:at+page], int64(at), 0))
	}
	if err := write(0); err != nil {
		t.Fatal(err)
	}
	commit(t, d, "first")
	if err := write(page); !errors.Is(err, device.ErrFault) {
		t.Fatal(err)
	}
	if err := write(2 * page); err != nil { // it was pending together with the one that failed
		t.Fatal(err)
	}
	commit(t, d, "second") // depends on nothing new
	wantRestored(t, b, "second", content[:page])
	for at := page; at < len(content); at += page {
		if err := write(at); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, d, "third")
	wantRestored(t, b, "third", content)
	if s := d.Status(); s.LogEnd != int64(len(content)) {
		t.Errorf("%+v", s)
	}
}

// TestLastBlockAgain: while the block in which the log ends is written again, a state that
// depends on its beginning is uploaded with it, and later the rest.
func TestLastBlockAgain(t *testing.T) {
	b := memBucket(t)
	local := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	d := mustOpen(t, local, b, testOptions())
	defer closeAll(t, d)
	if err := d.Start(0); err != nil {
		t.Fatal(err)
	}
	content := random(3000)
	p := devicetest.NewPump(t, d, 4)
	defer p.Close()
	p.Write(slices.Clone(content[:1000]), 0, nil)
	p.Drain()
	q, err := d.NewQueue(1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, q)
	defer local.Release()
	local.Set(device.FaultyOptions{Stuck: 1})
	if err := errors.Join(q.Write(content, 0, 0), q.Submit()); err != nil {
		t.Fatal(err)
	}
	local.Set(device.FaultyOptions{})
	commit(t, d, "beginning")
	wantRestored(t, b, "beginning", content[:1000])
	local.Release()
	if err := device.Finish(t.Context(), q, nil); err != nil {
		t.Fatal(err)
	}
	commit(t, d, "whole")
	wantRestored(t, b, "whole", content)
}

// TestProven: a catalog of which the bucket has not stored a blob is not stored, and the one
// before it stays and can be restored.
func TestProven(t *testing.T) {
	for _, what := range []string{segmentPrefix, objectPrefix} {
		t.Run(strings.TrimSuffix(what, "/"), func(t *testing.T) {
			s3 := newS3(t)
			b := openBucket(t, s3.url())
			d, content := filled(t, device.NewMemory(), b, testOptions(), minSegmentSize+500)
			defer closeAll(t, d)
			s3.set(func(_ int64, r *http.Request) int {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, what) {
					return http.StatusOK // and stores nothing
				}
				return 0
			})
			more := append(slices.Clone(content), random(minSegmentSize)...)
			p := devicetest.NewPump(t, d, 1)
			p.Write(slices.Clone(more[len(content):]), int64(len(content)), nil)
			p.Close()
			w, err := d.CreateObject("o")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte("object")); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Commit(), d.Sync(), d.WriteMeta("meta", []byte("more"))); err != nil {
				t.Fatal(err)
			}
			testrun.Until(t, "the upload has failed", func() bool { return d.Status().Err != nil })
			if err := d.Status().Err; !strings.Contains(err.Error(), "lacks") || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want an error that names the blob", err)
			}
			wantRestored(t, b, "data", content)
			s3.set(func(int64, *http.Request) int { return 0 })
			flush(t, d)
			wantRestored(t, b, "more", more)
		})
	}
}

// TestLostBlobs: blobs that the bucket has lost, or has in other lengths, are uploaded again
// when the device is opened again.
func TestLostBlobs(t *testing.T) {
	b := memBucket(t)
	local := device.NewMemory()
	d, content := filled(t, local, b, testOptions(), 3*minSegmentSize)
	closeAll(t, d)
	c := d.catalog.Load()
	if err := errors.Join(
		b.Delete(t.Context(), c.Pieces[0].Key), b.WriteAll(t.Context(), c.Pieces[1].Key, []byte("short"), nil),
	); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, local.Reopen(), b, testOptions())
	defer closeAll(t, d)
	if err := d.Start(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	commit(t, d, "again")
	wantRestored(t, b, "again", content)
}

// TestReach: a catalog has the log up to its first gap, and one that has less than its metadata
// depends on is not stored.
func TestReach(t *testing.T) {
	c := &catalog{SegmentSize: minSegmentSize, Begin: 10}
	for _, step := range []struct {
		piece piece
		want  int64
	}{
		{piece{From: 2 * minSegmentSize, To: 3 * minSegmentSize}, 10},
		{piece{From: 10, To: 500}, 500},
		{piece{From: minSegmentSize, To: 2 * minSegmentSize}, 500},
		{piece{From: 0, To: minSegmentSize}, 3 * minSegmentSize},
	} {
		if c.set(step.piece); c.reach() != step.want {
			t.Errorf("with %+v it reaches %d, want %d", step.piece, c.reach(), step.want)
		}
	}
	d, _ := filled(t, device.NewMemory(), memBucket(t), testOptions(), 1000)
	defer closeAll(t, d)
	old := d.catalog.Load()
	if err := d.publish(t.Context(), d.following(old), 1001); err == nil || d.catalog.Load() != old {
		t.Errorf("%v, and catalog %+v", err, d.catalog.Load())
	}
}
