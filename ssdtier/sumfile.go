package ssdtier

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// A file of sums begins with a page of a line that identifies it, a line with the number of its
// segment, and zeros. Files of earlier versions do not have the second line. The number detects
// a segment that was renamed, with its sums, to another's name.
//
// The pages of sums follow, eight bytes for each, little endian. They are written in place: a
// torn write leaves each sum either old or new.
const (
	sumSuffix      = ".sum"
	sumPageSize    = 8 * sumsPerPage
	sumLine        = "redykv sums 1 unit 4096\n"
	sumSegmentLine = "segment %d\n"
)

func sumName(number int64) string {
	return strings.TrimSuffix(segmentName(number), segmentSuffix) + sumSuffix
}

// parseSumName is the inverse of sumName.
func parseSumName(name string) (int64, bool) {
	base, ok := strings.CutSuffix(name, sumSuffix)
	if !ok {
		return 0, false
	}
	return parseSegmentName(base + segmentSuffix)
}

// parseSums reads the sums in the bytes of a segment's file into the table. Sums beyond the
// segment are ignored.
func parseSums(data []byte, number int64, t *sumTable) error {
	if err := checkSumHeader(data, number); err != nil {
		return err
	}
	data = data[sumPageSize:]
	for n := int64(0); n < int64(len(t.pages)) && len(data) >= 8; n++ {
		page := data[:min(len(data), sumPageSize)]
		data = data[len(page):]
		for i := 0; i+8 <= len(page); i += 8 {
			if sum := binary.LittleEndian.Uint64(page[i:]); sum != sumNone {
				t.page(n)[i/8].Store(sum)
			}
		}
	}
	return nil
}

// checkSumHeader returns an error if the first page of a segment's file is not valid.
func checkSumHeader(data []byte, number int64) error {
	if len(data) < sumPageSize || string(data[:len(sumLine)]) != sumLine {
		return errors.New("it does not begin with the header of a file of checksums")
	}
	header := data[:sumPageSize]
	if header[len(sumLine)] == 0 || bytes.Equal(header, sumHeader(number)) {
		return nil
	}
	var other int64
	if _, err := fmt.Sscanf(string(header[len(sumLine):]), sumSegmentLine, &other); err != nil || !bytes.Equal(header, sumHeader(other)) {
		return errors.New("its header does not name its segment")
	}
	return fmt.Errorf("it belongs to %s: were files exchanged?", segmentName(other))
}

// loadSums reads the sums of a segment. It returns an error only if the file cannot be read: a
// missing or damaged file may belong to blocks that Start drops. The blocks that Start keeps
// have no sums then, and reads of them return sumsErr.
func (s *segment) loadSums() error {
	data, err := readStart(s.sumPath, sumsEnd(s.d.opts.SegmentSize))
	if err == nil {
		if err = parseSums(data, s.number, s.sums); err == nil {
			return nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return wrap(err)
	}
	s.sumsErr = fmt.Errorf("%s is lost, restore it (%w)", s.sumPath, err)
	s.newSums = true
	return nil
}

// adopt creates the file of sums of a segment that was written without, with sumUnverified.
func (s *segment) adopt() error {
	if s.sumsErr == nil {
		return nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return wrap(err)
	}
	blocks := int64(len(s.sums.pages)) * sumsPerPage
	for n := range min((info.Size()+sumUnit-1)/sumUnit, blocks) {
		s.sums.set(n, sumUnverified)
	}
	s.sumsErr = nil
	return s.storeSums(s.changedSums())
}

// storeSums makes the sums durable that have changed. Their blocks are. The caller holds Device.mu.
// Sums that could not be written or synced are written again the next time.
func (s *segment) storeSums(changed []sumsToStore) error {
	if len(changed) == 0 {
		return nil
	}
	if err := s.d.withSpace(func() error { return s.writeAndSync(changed) }); err != nil {
		for _, c := range changed {
			s.sums.dirty[c.number].Store(true)
		}
		return fmt.Errorf("ssdtier: checksums: %w", err)
	}
	return nil
}

func (s *segment) writeAndSync(changed []sumsToStore) error {
	flags := os.O_WRONLY | os.O_CREATE
	if s.newSums {
		flags |= os.O_TRUNC
	}
	f, err := openFile(s.sumPath, flags, 0o666)
	if err != nil {
		return err
	}
	s.headed = s.headed && !s.newSums
	s.newSums = false
	if !s.headed { // after a sync that failed, the system does not write it by itself
		_, err = f.WriteAt(sumHeader(s.number), 0)
	}
	if err == nil {
		err = writeSums(f, changed)
	}
	if err == nil {
		err = syncData(f)
	}
	s.headed = s.headed || err == nil
	return errors.Join(err, f.Close())
}

// makeSums creates the file of sums before the segment, so that a segment without one has lost
// it.
func (d *Device) makeSums(number int64) error {
	return writeAndRename(d.path(sumName(number)), sumHeader(number), 0o666, false)
}

// noSums reports whether a file of sums has none: nothing of its segment was synced.
func noSums(data []byte, number int64) bool {
	return neverSynced(data) || len(data) == sumPageSize && checkSumHeader(data, number) == nil
}

func sumHeader(number int64) []byte {
	header := make([]byte, sumPageSize)
	copy(header, fmt.Appendf([]byte(sumLine), sumSegmentLine, number))
	return header
}

// sumsToStore is a copy of a page of sums, made by changedSums.
type sumsToStore struct {
	number int
	data   []byte
}

// changedSums copies the pages that have changed since the last copy.
func (s *segment) changedSums() []sumsToStore {
	var changed []sumsToStore
	for n := range s.sums.pages {
		p := s.sums.pages[n].Load()
		if p == nil || !s.sums.dirty[n].Swap(false) {
			continue
		}
		// Loaded first: a block that is written again meanwhile belongs to the next
		// Sync.
		a := s.accepted.Load()
		data := make([]byte, 0, sumPageSize)
		for i := range p {
			sum := p[i].Load()
			if a != nil && a.number == int64(n*sumsPerPage+i) && a.now == sum {
				sum = a.stored
			}
			data = binary.LittleEndian.AppendUint64(data, sum)
		}
		changed = append(changed, sumsToStore{n, data})
	}
	return changed
}

func writeSums(w io.WriterAt, changed []sumsToStore) error {
	for _, c := range changed {
		if _, err := w.WriteAt(c.data, sumPageSize*int64(1+c.number)); err != nil {
			return err
		}
	}
	return nil
}
