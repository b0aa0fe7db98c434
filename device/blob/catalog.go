package blob

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

const (
	catalogPrefix = "catalog/"
	segmentPrefix = "segment/"
	objectPrefix  = "object/"

	catalogFormat = 1
	// maxCatalog bounds the size of a catalog that is read.
	maxCatalog = 1 << 30
)

// catalog is a state of the store: the blobs that belong to it. A stored catalog does not
// change; a later one has a higher number.
type catalog struct {
	Format      int    `json:"format"`
	Store       string `json:"store"`  // the same for all states of one log
	Writer      string `json:"writer"` // the machine that uses the store
	Number      int64  `json:"number"` // 1 for the first that is stored
	SegmentSize int64  `json:"segment_size"`

	Begin   int64             `json:"begin"`
	Pieces  []piece           `json:"pieces"` // of the log, ascending, of different segments
	Objects map[string]stored `json:"objects"`
	Meta    map[string][]byte `json:"meta"`
}

// piece is a blob with the bytes from From until Stored, of which those below To belong to
// the log. It lies within a segment.
type piece struct {
	Key    string `json:"key"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Stored int64  `json:"stored"`
}

// stored is a blob with an object.
type stored struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
}

func catalogKey(number int64) string { return fmt.Sprintf("%s%016x", catalogPrefix, number) }

// parseCatalogKey is the inverse of catalogKey.
func parseCatalogKey(key string) (number int64, ok bool) {
	_, err := fmt.Sscanf(strings.TrimPrefix(key, catalogPrefix), "%x", &number)
	return number, err == nil && key == catalogKey(number)
}

func (c *catalog) segmentKey(from int64) string {
	return fmt.Sprintf("%s%012d-%x-%s", segmentPrefix, from/c.SegmentSize, c.Number, c.Writer)
}

func (c *catalog) objectKey(name string) string {
	return fmt.Sprintf("%s%s-%x-%s", objectPrefix, name, c.Number, c.Writer)
}

// clone returns a copy that can be changed.
func (c *catalog) clone() *catalog {
	n := *c
	n.Pieces = slices.Clone(c.Pieces)
	n.Objects = maps.Clone(c.Objects)
	n.Meta = maps.Clone(c.Meta)
	return &n
}

// find returns the piece that has the byte at an address.
func (c *catalog) find(addr int64) (piece, bool) {
	i, _ := slices.BinarySearchFunc(c.Pieces, addr, func(p piece, addr int64) int {
		if p.To <= addr {
			return -1
		}
		return 1
	})
	if i < len(c.Pieces) && c.Pieces[i].From <= addr {
		return c.Pieces[i], true
	}
	return piece{}, false
}

// set adds a piece, in place of the one of its segment, if there is one.
func (c *catalog) set(p piece) {
	i, found := slices.BinarySearchFunc(c.Pieces, p, func(a, b piece) int {
		return cmp.Compare(a.From/c.SegmentSize, b.From/c.SegmentSize)
	})
	if found {
		c.Pieces[i] = p
	} else {
		c.Pieces = slices.Insert(c.Pieces, i, p)
	}
}

// end drops what lies at or above an address.
func (c *catalog) end(tail int64) {
	c.Pieces = slices.DeleteFunc(c.Pieces, func(p piece) bool { return p.From >= tail })
	if n := len(c.Pieces); n > 0 {
		c.Pieces[n-1].To = min(c.Pieces[n-1].To, tail)
	}
}

// drop drops what lies below an address, whole pieces only.
func (c *catalog) drop(begin int64) {
	c.Begin = begin
	c.Pieces = slices.DeleteFunc(c.Pieces, func(p piece) bool { return p.To <= begin })
}

// reach is the address up to which the catalog has the log without a gap.
func (c *catalog) reach() int64 {
	at := c.Begin
	for _, p := range c.Pieces {
		if p.From > at {
			break
		}
		at = max(at, p.To)
	}
	return at
}

// blobs are the blobs that the catalog names, with their sizes.
func (c *catalog) blobs() map[string]int64 {
	blobs := make(map[string]int64, len(c.Pieces)+len(c.Objects))
	for _, p := range c.Pieces {
		blobs[p.Key] = packedSize(p.Stored - p.From)
	}
	for _, o := range c.Objects {
		blobs[o.Key] = packedSize(o.Size)
	}
	return blobs
}

// keys are the blobs that belong to the state.
func (c *catalog) keys() map[string]bool {
	keys := make(map[string]bool, len(c.Pieces)+len(c.Objects)+1)
	for key := range c.blobs() {
		keys[key] = true
	}
	if c.Number > 0 {
		keys[catalogKey(c.Number)] = true
	}
	return keys
}

// check returns an error if a catalog that was read is invalid.
func (c *catalog) check() error {
	switch {
	case c.Format != catalogFormat:
		return fmt.Errorf("its format is %d, this version reads %d", c.Format, catalogFormat)
	case c.Store == "" || c.Writer == "" || c.Number < 1 || c.Begin < 0:
		return errors.New("store, writer, number or begin is missing or not valid")
	}
	if err := checkSegmentSize(c.SegmentSize); err != nil {
		return err
	}
	end := int64(0)
	for _, p := range c.Pieces {
		if p.From < end || p.To <= p.From || p.Stored < p.To || p.From/c.SegmentSize != (p.Stored-1)/c.SegmentSize || p.Key == "" {
			return fmt.Errorf("a part of the log is not valid: %+v", p)
		}
		end = (p.From/c.SegmentSize + 1) * c.SegmentSize
	}
	for name, o := range c.Objects {
		if device.CheckName(name) != nil || o.Size < 0 || o.Key == "" {
			return fmt.Errorf("object %q is not valid: %+v", name, o)
		}
	}
	for name := range c.Meta {
		if device.CheckName(name) != nil {
			return fmt.Errorf("metadata %q: the name is not valid", name)
		}
	}
	return nil
}

// encode returns a line with the checksum of the catalog's JSON, followed by the JSON.
func (c *catalog) encode() ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("blob: catalog: %w", err)
	}
	return append(fmt.Appendf(nil, catalogLine, xxhash.Sum64(data)), data...), nil
}

const catalogLine = "redykv catalog %016x\n"

// parseCatalog is the inverse of encode.
func parseCatalog(data []byte) (*catalog, error) {
	line, text, _ := bytes.Cut(data, []byte("\n"))
	if string(line)+"\n" != fmt.Sprintf(catalogLine, xxhash.Sum64(text)) {
		return nil, fmt.Errorf("the checksum does not match: %w", errDamaged)
	}
	c := &catalog{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, err
	}
	return c, c.check()
}

// newestNumber returns the highest number of a catalog; 0 if there is none.
func (b *bucket) newestNumber(ctx context.Context) (newest int64, err error) {
	there, err := b.list(ctx, catalogPrefix)
	for key := range there {
		if n, ok := parseCatalogKey(key); ok {
			newest = max(newest, n)
		}
	}
	return newest, err
}

// newestCatalog reads the catalog with the highest number; nil if there is none.
func (b *bucket) newestCatalog(ctx context.Context) (c *catalog, err error) {
	var before int64
	for {
		newest, err := b.newestNumber(ctx)
		if err != nil || newest == 0 {
			return nil, err
		}
		c, err := b.readCatalog(ctx, newest)
		if notFound(err) && newest > before {
			before = newest // a newer one was stored and this one deleted
			continue
		}
		return c, err
	}
}

// readCatalog reads the catalog with a number.
func (b *bucket) readCatalog(ctx context.Context, number int64) (c *catalog, err error) {
	err = b.get(ctx, catalogKey(number), 0, -1, func(data []byte) (err error) {
		if c, err = parseCatalog(data); err == nil && c.Number != number {
			err = fmt.Errorf("its number is %d", c.Number)
		}
		if err != nil && !errors.Is(err, errDamaged) {
			err = &sourceError{err} // permanent
		}
		return err
	})
	if errors.Is(err, errDamaged) || errors.As(err, new(*sourceError)) {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// storeCatalog stores a catalog under its number. The number and all higher ones must be
// free: another machine that uses the store deletes older catalogs.
func (b *bucket) storeCatalog(ctx context.Context, c *catalog) error {
	if err := b.createCatalog(ctx, c); err != nil {
		return err
	}
	newest, err := b.newestNumber(ctx)
	if err != nil || newest <= c.Number {
		return err
	}
	return errors.Join(fmt.Errorf("%w: catalog %d exists already", ErrTaken, newest), b.remove(ctx, catalogKey(c.Number)))
}

// createCatalog stores a catalog whose number is free. If an equal one exists, it was stored
// by an earlier attempt whose reply was lost.
func (b *bucket) createCatalog(ctx context.Context, c *catalog) error {
	data, err := c.encode()
	if err != nil {
		return err
	}
	err = b.put(ctx, catalogKey(c.Number), true, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if !exists(err) {
		return err
	}
	there, readErr := b.readCatalog(ctx, c.Number)
	if readErr != nil && !notFound(readErr) {
		return errors.Join(err, readErr)
	}
	if there != nil {
		if same, err := there.encode(); err == nil && bytes.Equal(same, data) {
			return nil
		}
	}
	return fmt.Errorf("%w: catalog %d exists already", ErrTaken, c.Number)
}
