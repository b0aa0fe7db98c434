package manager

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/redykv/redykv/internal/api/catalogv1"
	"github.com/redykv/redykv/manager/api"
	"github.com/redykv/redykv/manager/catalog"
)

// Keys of the catalog's records.
//
//	vm/ORDER        catalogv1.Vm: each VM, and each that has failed and has grants
//	cache/ID        catalogv1.Cache: each cache that was allocated, and for a while each that has ended
//	grant/CACHE/ID  catalogv1.Grant: each loan of memory, until its server took it back
//	decision/CACHE  catalogv1.Decisions
//	learnt          catalogv1.Learnt
//	setting         catalogv1.Setting
//	token           the secret from which the tokens of launched servers are made
//	epoch           that of the last leader: 8 bytes, big-endian
const (
	vmPrefix       = "vm/"
	cachePrefix    = "cache/"
	grantPrefix    = "grant/"
	decisionPrefix = "decision/"
	learntKey      = "learnt"
	settingKey     = "setting"
	tokenKey       = "token"
	epochKey       = "epoch"
)

func vmKey(order uint64) string {
	return vmPrefix + hex.EncodeToString(binary.BigEndian.AppendUint64(nil, order))
}

func grantKey(cache, id string) string { return grantPrefix + cache + "/" + id }

// encoded returns a message's record, which is not nil.
func encoded(p proto.Message) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend([]byte{}, p)
}

func (v *vm) key() string { return vmKey(v.order) }

func (v *vm) encode() ([]byte, error) {
	if v.gone {
		return nil, nil
	}
	info := v.VM
	info.ID = v.id
	return encoded(&catalogv1.Vm{
		Vm: info.Proto(true), Order: v.order, Launched: v.launched, Memory: v.memory, Beats: !v.deadline.IsZero(),
		Leaving: v.leaving, Failed: v.failed, ControlSecret: []byte(v.Secret), Registrant: v.registrant,
		LeavesUnixMs: api.ToMillis(v.leaves), LeavesNoticeMs: v.notice.Milliseconds(), Warm: v.warm, Observed: v.observed,
	})
}

func (ca *cache) key() string { return cachePrefix + ca.id }

func (ca *cache) encode() ([]byte, error) {
	switch {
	case ca.past != nil:
		return ca.past.encode()
	case ca.ended:
		return nil, nil
	}
	return encoded(&catalogv1.Cache{
		Id: ca.id, Demand: ca.demand.stored(), Grants: heldOf(ca.grants), Pending: heldOf(ca.pending),
		Given: ca.given, CreatedUnixMs: api.ToMillis(ca.created), LeaseMs: ca.lease.Milliseconds(), Settled: ca.change,
		RequestId: ca.requestID, RequestSum: ca.requestSum, Last: ca.last,
		LingerMs: ca.linger.Milliseconds(), LingersUnixMs: api.ToMillis(ca.lingers), Holder: ca.holder, AttachId: ca.attachID,
		Places: ca.places, Moving: ca.moving, Owner: ca.owner, Adopted: ca.adopted,
	})
}

func heldOf(grants []*grant) []*catalogv1.Held {
	var all []*catalogv1.Held
	for _, g := range grants {
		all = append(all, &catalogv1.Held{Id: g.id, Regions: g.regions, Cores: g.cores})
	}
	return all
}

func (g *grant) key() string { return grantKey(g.cache, g.id) }

func (g *grant) encode() ([]byte, error) {
	if g.phase == gone {
		return nil, nil
	}
	return encoded(&catalogv1.Grant{
		CacheId: g.cache, Id: g.id, VmOrder: g.vm.order, Regions: g.lends, RegionSize: g.regionSize,
		Cores: g.cores, Launch: g.launch, Change: g.change,
	})
}

// decisions are the latest decisions of each kind about a cache.
type decisions struct {
	stored
	of *cache
	p  *catalogv1.Decisions // immutable
}

func (d *decisions) key() string { return decisionPrefix + d.of.id }

func (d *decisions) encode() ([]byte, error) {
	if d.of.ended {
		return nil, nil
	}
	return encoded(d.p)
}

// single is a record of which there is one.
type single struct {
	stored
	name string
	make func() ([]byte, error)
}

func (s *single) key() string             { return s.name }
func (s *single) encode() ([]byte, error) { return s.make() }

func (d demand) stored() *catalogv1.Demand {
	return &catalogv1.Demand{
		Capacity: d.capacity, RegionSize: d.regionSize, Regions: d.regions, Per: d.per,
		Slo: d.slo, Configuration: d.config, Transport: d.transport,
		DurationSeconds: d.duration, Distance: d.distance, CloudRegion: d.cloudRegion, Client: d.client,
		Chosen: d.chosen,
	}
}

func demandFrom(p *catalogv1.Demand) demand {
	return demand{
		capacity: p.GetCapacity(), regionSize: p.GetRegionSize(), regions: p.GetRegions(), per: p.GetPer(),
		slo: p.GetSlo(), config: p.GetConfiguration(), transport: p.GetTransport(),
		duration: p.GetDurationSeconds(), distance: p.GetDistance(), cloudRegion: p.GetCloudRegion(), client: p.GetClient(),
		chosen: p.GetChosen(),
	}
}

// checkStored checks the bounds of values that are summed.
func (d demand) checkStored() error {
	if size, _, err := regionsFor(d.capacity, d.regionSize); err != nil || size != d.regionSize {
		return fmt.Errorf("capacity %d in regions of %d bytes: %w", d.capacity, d.regionSize, err)
	}
	return checkConfiguration(d.config, d.slo.GetRecordSize())
}

// contents are all records of a catalog.
type contents struct {
	vms       []*catalogv1.Vm
	caches    []*catalogv1.Cache
	grants    []*catalogv1.Grant
	decisions map[string]*catalogv1.Decisions // by cache
	learnt    catalogv1.Learnt
	setting   catalogv1.Setting
	launchKey string // empty: none was stored
	epoch     uint64 // of the last leader; 0: there was none

	versions map[string]int64 // by key
}

// add adds one record. Errors are [catalog.ErrCorrupt] and [catalog.ErrFormat].
func (c *contents) add(r catalog.Record) (err error) {
	key, value := r.Key, r.Value
	c.versions[key] = r.Version
	switch kind, name, _ := strings.Cut(key, "/"); {
	case kind+"/" == vmPrefix:
		p := new(catalogv1.Vm)
		if err = proto.Unmarshal(value, p); err == nil && key != vmKey(p.GetOrder()) {
			err = fmt.Errorf("contents are of VM %.40q, order %d", p.GetVm().GetId(), p.GetOrder())
		}
		c.vms = append(c.vms, p)
	case kind+"/" == cachePrefix:
		p := new(catalogv1.Cache)
		if err = proto.Unmarshal(value, p); err == nil && name != p.GetId() {
			err = fmt.Errorf("contents are of cache %.40q", p.GetId())
		}
		c.caches = append(c.caches, p)
	case kind+"/" == grantPrefix:
		p := new(catalogv1.Grant)
		if err = proto.Unmarshal(value, p); err == nil && key != grantKey(p.GetCacheId(), p.GetId()) {
			err = fmt.Errorf("contents are of grant %.40q of cache %.40q", p.GetId(), p.GetCacheId())
		}
		c.grants = append(c.grants, p)
	case kind+"/" == decisionPrefix:
		p := new(catalogv1.Decisions)
		err = proto.Unmarshal(value, p)
		c.decisions[name] = p
	case key == tokenKey:
		c.launchKey = string(value)
	case key == learntKey:
		err = proto.Unmarshal(value, &c.learnt)
	case key == settingKey:
		err = proto.Unmarshal(value, &c.setting)
	case key == epochKey && len(value) != 8:
		err = fmt.Errorf("%d bytes: want 8", len(value))
	case key == epochKey:
		c.epoch = binary.BigEndian.Uint64(value)
	default:
		return fmt.Errorf("%w: record %.40q", catalog.ErrFormat, key)
	}
	if err != nil && !errors.Is(err, catalog.ErrCorrupt) {
		err = fmt.Errorf("%w: record %s: %w", catalog.ErrCorrupt, key, err)
	}
	return err
}
