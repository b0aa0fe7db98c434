package catalog

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
)

const (
	vmPrefix    = "vm/"
	cachePrefix = "cache/"
	tokenKey    = "token"
	learntKey   = "learnt"
	settingKey  = "setting"
	epochKey    = "epoch"
)

func vmKey(order uint64) string {
	return vmPrefix + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, order))
}

// Changes are records that [OldStore.Apply] writes together. A nil record deletes.
type Changes map[string][]byte

// VM changes the record of the VM with sequence number order; nil deletes it.
func (c Changes) VM(order uint64, p *catalogv1.Vm) error {
	return c.put(vmKey(order), p)
}

// Cache changes the record of a cache; nil deletes it.
func (c Changes) Cache(id string, p *catalogv1.Cache) error {
	return c.put(cachePrefix+id, p)
}

// Learnt changes the manager's measurements.
func (c Changes) Learnt(p *catalogv1.Learnt) error { return c.put(learntKey, p) }

// Setting changes the manager's settings.
func (c Changes) Setting(p *catalogv1.Setting) error { return c.put(settingKey, p) }

// LaunchKey changes the secret from which tokens of launched servers are made.
func (c Changes) LaunchKey(key string) { c[tokenKey] = []byte(key) }

// Epoch changes the epoch of the manager.
func (c Changes) Epoch(epoch uint64) { c[epochKey] = binary.BigEndian.AppendUint64(nil, epoch) }

// put stores a message; nil deletes. An empty one is stored as an empty record, not as nil.
func (c Changes) put(key string, p proto.Message) (err error) {
	if !p.ProtoReflect().IsValid() { // a nil pointer
		c[key] = nil
		return nil
	}
	c[key], err = proto.MarshalOptions{}.MarshalAppend([]byte{}, p)
	return err
}

// Contents are all records of a store.
type Contents struct {
	VMs       []*catalogv1.Vm
	Caches    []*catalogv1.Cache
	Learnt    catalogv1.Learnt
	Setting   catalogv1.Setting
	LaunchKey string // empty: none was stored
	Epoch     uint64 // of the last manager; 0: there was none
}

// Read reads a store. Errors are [ErrCorrupt] and [ErrFormat].
func Read(s OldStore) (*Contents, error) {
	c := new(Contents)
	return c, s.Load(c.record)
}

// record adds one record.
func (c *Contents) record(key string, value []byte) (err error) {
	switch {
	case strings.HasPrefix(key, vmPrefix):
		p := new(catalogv1.Vm)
		if err = proto.Unmarshal(value, p); err == nil && (key != vmKey(p.GetOrder()) || p.GetFailed() != "") {
			err = fmt.Errorf("contents are of VM %.40q, order %d", p.GetVm().GetId(), p.GetOrder())
		}
		c.VMs = append(c.VMs, p)
	case strings.HasPrefix(key, cachePrefix):
		p := new(catalogv1.Cache)
		if err = proto.Unmarshal(value, p); err == nil && key != cachePrefix+p.GetId() {
			err = fmt.Errorf("contents are of cache %.40q", p.GetId())
		}
		c.Caches = append(c.Caches, p)
	case key == tokenKey:
		c.LaunchKey = string(value)
	case key == learntKey:
		err = proto.Unmarshal(value, &c.Learnt)
	case key == settingKey:
		err = proto.Unmarshal(value, &c.Setting)
	case key == epochKey && len(value) != 8:
		err = fmt.Errorf("%d bytes: want 8", len(value))
	case key == epochKey:
		c.Epoch = binary.BigEndian.Uint64(value)
	case key != formatKey:
		return fmt.Errorf("%w: record %.40q", ErrFormat, key)
	}
	if err != nil {
		return fmt.Errorf("%w: record %s: %w", ErrCorrupt, key, err)
	}
	return nil
}
