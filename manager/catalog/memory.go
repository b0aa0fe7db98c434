package catalog

import (
	"maps"
	"slices"
)

// Memory is a store in memory.
type Memory struct{ *local }

// memory is a backend.
type memory struct {
	records map[string]Record
}

// NewMemory returns an empty store in memory, with one candidate.
func NewMemory() *Memory {
	return &Memory{newElectorate(&memory{records: make(map[string]Record)}).join()}
}

// Join returns a store on the same records for another candidate of the election. The
// records exist as long as one of the stores is referenced, even if all are closed.
func (m *Memory) Join() *Memory { return &Memory{m.join()} }

func (m *memory) load(each func(Record) error) error {
	for _, key := range slices.Sorted(maps.Keys(m.records)) {
		if err := each(m.records[key]); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) version(key string) (int64, error) { return m.records[key].Version, nil }

func (m *memory) write(changes []Change) error {
	for _, c := range changes {
		if c.Value == nil {
			delete(m.records, c.Key)
		} else {
			m.records[c.Key] = Record{c.Key, append([]byte{}, c.Value...), c.Version + 1}
		}
	}
	return nil
}

func (m *memory) error() error { return nil }

func (m *memory) close() error { return nil }
