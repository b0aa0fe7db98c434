package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/redykv/redykv/internal/machine"
)

// format is the version of the file format. Files of other versions are refused.
const format = 1

// Model holds all measurements of one transport on one machine. It is stored as a JSON
// file.
type Model struct {
	Format       int            `json:"format"`
	Provenance   Provenance     `json:"provenance"`
	Measurements []*Measurement `json:"measurements"`
}

// Provenance describes how a model was measured (A25).
type Provenance struct {
	Transport string    `json:"transport"`
	Network   string    `json:"network"` // modelled networks, or none
	Host      Host      `json:"host"`
	Date      time.Time `json:"date"`     // of the first measurement
	Revision  string    `json:"revision"` // source revision of the measuring program
	// Apart means that clients and servers shared the host, but no processor.
	Apart bool `json:"apart,omitzero"`
}

// String describes what was measured, and where.
func (p Provenance) String() string {
	return fmt.Sprintf("transport %s, network %s, %s", p.Transport, p.Network, p.On())
}

// On describes where it was measured.
func (p Provenance) On() string {
	if p.Apart {
		return fmt.Sprintf("on %v, clients and servers apart", p.Host)
	}
	return fmt.Sprintf("on %v", p.Host)
}

// Host describes a machine.
type Host struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
}

// ThisHost describes the machine that this program runs on.
func ThisHost() Host {
	return Host{CPU: machine.Processor(), Cores: runtime.NumCPU(), Kernel: machine.Kernel()}
}

// Same reports whether two hosts are so alike that a model of one applies to the other.
func (h Host) Same(o Host) bool { return h.CPU == o.CPU && h.Cores == o.Cores }

func (h Host) String() string { return fmt.Sprintf("%s, %d CPUs, %s", h.CPU, h.Cores, h.Kernel) }

// New returns a model without measurements.
func New(p Provenance) *Model { return &Model{Format: format, Provenance: p} }

// Add adds a new measurement. If the model has one of the same record size and distance,
// Add returns that one; its bounds and network must be the same.
func (m *Model) Add(n *Measurement) (*Measurement, error) {
	if err := n.Check(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	for _, o := range m.Measurements {
		if o.RecordSize != n.RecordSize || o.Distance != n.Distance {
			continue
		}
		if o.Network != n.Network || o.ClientCores != n.ClientCores || o.QueueDepth != n.QueueDepth || o.Threads != n.Threads {
			return nil, fmt.Errorf("model: records of %d bytes at distance %d were measured with up to %d client cores, queue depth %d, %d threads and network %q: use another file, or the same bounds",
				o.RecordSize, o.Distance, o.ClientCores, o.QueueDepth, o.Threads, o.Network)
		}
		return o, nil
	}
	m.Measurements = append(m.Measurements, n)
	return n, nil
}

// Check returns an error if the model is invalid.
func (m *Model) Check() error {
	p := m.Provenance
	if m.Format != format {
		return fmt.Errorf("format %d: this program reads format %d", m.Format, format)
	}
	if p.Transport == "" {
		return errors.New("provenance: no transport")
	}
	for what, text := range map[string]string{
		"transport": p.Transport, "network": p.Network, "cpu": p.Host.CPU, "kernel": p.Host.Kernel, "revision": p.Revision,
	} {
		if len(text) > maxText {
			return fmt.Errorf("provenance: %s %.40q: want at most %d bytes", what, text, maxText)
		}
	}
	type key struct{ size, distance int }
	seen := map[key]bool{}
	for i, n := range m.Measurements {
		if n == nil {
			return fmt.Errorf("measurement %d is null", i)
		}
		k := key{n.RecordSize, n.Distance}
		if seen[k] {
			return fmt.Errorf("records of %d bytes at distance %d: measured twice", n.RecordSize, n.Distance)
		}
		seen[k] = true
		if err := n.Check(); err != nil {
			return fmt.Errorf("records of %d bytes at distance %d: %w", n.RecordSize, n.Distance, err)
		}
	}
	return nil
}

// maxFile is the maximum size of a model file in bytes.
const maxFile = 64 << 20

// Load reads a model file.
func Load(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	var m *Model
	if err == nil {
		m, err = Parse(data)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	return m, nil
}

// Parse decodes a model as Encode writes it, and checks it.
func Parse(data []byte) (*Model, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	m := new(Model)
	if err := d.Decode(m); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after the model; want one JSON object")
	}
	return m, m.Check()
}

// Encode returns the model as JSON, one line per point.
func (m *Model) Encode() ([]byte, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	// Objects begin lines, except those within a point. Strings contain no unescaped quote,
	// so none of these matches within one.
	for _, begin := range []string{`"provenance":`, `"measurements":`, `{"record_size":`, `{"c":`} {
		data = bytes.ReplaceAll(data, []byte(begin), []byte("\n"+begin))
	}
	return append(data, '\n'), nil
}

// Save writes the model to a file atomically.
func (m *Model) Save(path string) (err error) {
	data, err := m.Encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("model: save %s: %w", path, err)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
