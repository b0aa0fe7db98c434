package blackbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redykv/redykv/internal/testrun"
)

// TestService runs a manager, cache servers and a store with remote memory in network
// namespaces. It kills, stops and partitions them under load, and checks the store. At the
// end of a cycle all faults are healed: the store must get remote memory again, and release
// all of it when it stops.
func TestService(t *testing.T) {
	testrun.SkipUnlessAll(t, "it runs servers for a minute")
	nodes := append([]string{managerNode, storeNode}, serverNodes...)
	network, err := newNetwork(t, nodes...)
	if err != nil {
		t.Skipf("no network namespaces: %v", err)
	}
	s := &service{network: network, dir: t.TempDir(), faults: make(map[string]int)}
	n := cycles(t, 2, "service", s.life)
	t.Logf("%d services; %v; %d replies and %d keys checked", n, s.faults, s.replies, s.verified)
}

const (
	managerNode = "manager"
	storeNode   = "store"
	storeAddr   = "127.0.0.1:6380"
	lease       = 8 * time.Second
)

var serverNodes = []string{"one", "two", "three"}

// service is a manager, its cache servers and a store.
type service struct {
	network *network
	dir     string
	promise Promise
	load    *Load
	flags   []string // of the store

	running map[string]*Process // by node
	heals   []heal
	done    []string // log of this cycle

	faults            map[string]int
	replies, verified int
}

// heal ends a fault at its due time.
type heal struct {
	due  time.Time
	node string
	do   func(context.Context) error
}

func (s *service) life(ctx context.Context, r *rand.Rand, seed uint64) (err error) {
	s.promise = []Promise{Always, EverySec}[r.IntN(2)]
	s.load = newLoad(r, s.promise)
	s.load.Model.Slack = time.Minute // a silent server delays commits for a while
	s.running, s.heals, s.done = make(map[string]*Process), nil, nil
	for _, name := range []string{"store", "manager"} {
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s\n%s", err, strings.Join(s.done, "\n"), s.logs())
		}
		for _, p := range s.running {
			p.Kill()
		}
	}()
	s.flags = append(someFlags(r), "--cache-linger", []string{"0", "2s"}[r.IntN(2)])
	for _, node := range slices.Concat([]string{managerNode}, serverNodes) {
		if err := s.start(ctx, node, true); err != nil {
			return err
		}
	}
	for round := range 1 + r.Uint64N(3) {
		if err := s.round(ctx, r, seed<<8+round); err != nil {
			return fmt.Errorf("%s, round %d: %w", s.promise, round, err)
		}
	}
	if err := s.heal(ctx, all); err != nil {
		return err
	}
	replies, verified := s.load.Model.Counts()
	s.replies, s.verified = s.replies+replies, s.verified+verified
	return s.end(ctx)
}

// start starts the program of a node. If wait is set, it waits until the program is ready,
// which may need other nodes.
func (s *service) start(ctx context.Context, node string, wait bool) error {
	addr := s.network.address(node)
	manager := s.network.address(managerNode) + ":7070"
	var argv []string
	ready := regexp.MustCompile("cache server ready")
	switch node {
	case managerNode:
		ready = regexp.MustCompile("manager ready at")
		argv = []string{
			"manager", "--calibrate=false", "--listen", manager, "--insecure", "--allocator", "static", "--transport", "tcp",
			"--state", filepath.Join(s.dir, "manager"), "--lease", lease.String(), "--heartbeat", "300ms",
		}
	case storeNode:
		ready = readyAt
		argv = append([]string{
			"serve", "--addr", storeAddr, "--dir", filepath.Join(s.dir, "store"), "--durability", string(s.promise),
			"--redy", manager, "--cache", "32MiB",
		}, s.flags...)
	default:
		argv = []string{
			"cacheserver", "--manager", "http://" + manager, "--memory", "48MiB", "--listen", addr + ":7071",
			"--fabric-listen", addr + ":7072", "--notice", "5s",
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("patience ends"))
	defer cancel()
	if !wait {
		ready = nil
	}
	p, err := Start(ctx, ready, s.network.at(node, append([]string{*binary}, argv...)...)...)
	if err == nil {
		s.running[node] = p
	}
	return err
}

// round runs the store under load during faults, and then may kill it.
func (s *service) round(ctx context.Context, r *rand.Rand, seed uint64) error {
	if p := s.running[storeNode]; p == nil || p.Ended() {
		if err := s.start(ctx, storeNode, true); err != nil {
			return err
		}
	}
	s.load.Dial = s.network.dial(storeNode, storeAddr)
	kill, rest, healed := true, busy, all
	if r.IntN(2) == 0 {
		kill, rest = false, 0
	}
	if r.IntN(2) == 0 {
		healed = ofStore // the store must start without its remote memory
	}
	at, err := s.load.during(ctx, seed, func(ctx context.Context) error {
		err := s.trouble(ctx, r, time.Now().Add(time.Second+chance(r, 5*time.Second)))
		if err == nil && !kill { // everything must be answered
			err = s.heal(ctx, ofStore)
		}
		return err
	}, rest, func() error {
		if kill {
			s.note("kill of the store")
			s.running[storeNode].Kill()
		}
		return nil
	})
	if err != nil || !kill {
		return err
	}
	if err := s.running[storeNode].Crashed(); err != nil {
		return err
	}
	if err := s.heal(ctx, healed); err != nil {
		return err
	}
	if err := s.start(ctx, storeNode, true); err != nil {
		return err
	}
	return check(ctx, s.load.Model, s.load.Dial, s.promise, at)
}

// trouble makes faults, several at once, and heals them, until the time is up.
func (s *service) trouble(ctx context.Context, r *rand.Rand, until time.Time) error {
	for ctx.Err() == nil && time.Now().Before(until) {
		now := time.Now()
		if err := s.heal(ctx, func(h heal) bool { return h.due.Before(now) }); err != nil {
			return err
		}
		if err := s.fault(ctx, r); err != nil {
			return err
		}
		_ = waits(chance(r, 800*time.Millisecond))(ctx) // never fails
	}
	return nil
}

// fault makes a fault at a random node, unless the node already has one.
func (s *service) fault(ctx context.Context, r *rand.Rand) error {
	nodes := slices.Concat([]string{managerNode, storeNode}, serverNodes)
	node, other := nodes[r.IntN(len(nodes))], nodes[r.IntN(len(nodes))]
	if slices.ContainsFunc(s.heals, func(h heal) bool { return h.node == node }) {
		return nil
	}
	how := time.Duration(r.IntN(3000)) * time.Millisecond
	if r.IntN(8) == 0 {
		how += lease // longer than the lease, so that the cache or server is given up
	}
	p := s.running[node]
	later := func(what string, do func(context.Context) error) {
		s.note("%s of %s for %v", what, node, how)
		s.heals = append(s.heals, heal{time.Now().Add(how), node, do})
	}
	reconnect := func(ctx context.Context) error { return s.network.heal(ctx, node) }
	switch kind := r.IntN(4); {
	case kind == 0 && node != storeNode:
		p.Kill()
		later("kill", func(ctx context.Context) error { return errors.Join(p.Crashed(), s.start(ctx, node, false)) })
		if node == managerNode && r.IntN(3) == 0 {
			return s.damage(r)
		}
	case kind == 1:
		p.Signal(syscall.SIGSTOP)
		later("stop", func(context.Context) error {
			p.Signal(syscall.SIGCONT)
			return nil
		})
	case kind == 2 && other != node:
		later("deafness to "+other, reconnect)
		return s.network.deafen(ctx, node, other)
	default:
		later("partition", reconnect)
		return s.network.link(ctx, node, "down")
	}
	return nil
}

// damage damages the state of a killed manager. If the manager refuses to start with it,
// the state is removed.
func (s *service) damage(r *rand.Rand) error {
	state := filepath.Join(s.dir, "manager")
	what, _, err := "", false, error(nil)
	for err == nil && what == "" {
		what, _, err = damageOne(r, state, "")
	}
	s.note("damage to the manager's state: %s", what)
	s.heals[len(s.heals)-1].do = func(ctx context.Context) error {
		err := s.start(ctx, managerNode, true)
		if err == nil {
			return nil
		}
		s.note("refusal of the manager to start")
		if err := refused(err); err != nil {
			return err
		}
		return errors.Join(os.RemoveAll(state), s.start(ctx, managerNode, true))
	}
	return err
}

func (s *service) note(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.done = append(s.done, time.Now().Format("05.000 ")+what)
	kind, _, _ := strings.Cut(what, " ")
	s.faults[kind]++
}

// all selects all faults, ofStore those of the store's node.
func all(heal) bool       { return true }
func ofStore(h heal) bool { return h.node == storeNode }

// heal ends the selected faults.
func (s *service) heal(ctx context.Context, which func(heal) bool) error {
	heals := s.heals
	s.heals = nil
	for _, h := range heals {
		if !which(h) {
			s.heals = append(s.heals, h)
			continue
		}
		s.note("healing of %s", h.node)
		if err := h.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// end waits until the store has remote memory again, checks all keys, and stops one program
// after the other. All memory must be free then.
func (s *service) end(ctx context.Context) error {
	for node, p := range s.running {
		if p.Ended() {
			return fmt.Errorf("the %s has ended by itself: %s", node, p.Log())
		}
	}
	err := s.eventually(ctx, "the store has remote memory from healthy servers", func(vms []vm, caches []cache) bool {
		whole := len(vms) == len(serverNodes) && len(caches) == 1
		for _, v := range vms {
			whole = whole && v.Healthy
		}
		for _, c := range caches {
			for _, share := range c.Grants {
				whole = whole && share.VM.Healthy
			}
		}
		return whole
	})
	if err != nil {
		return err
	}
	if err := check(ctx, s.load.Model, s.network.dial(storeNode, storeAddr), Always, time.Now()); err != nil {
		return err
	}
	if err := s.running[storeNode].Stop(patience); err != nil {
		return err
	}
	err = s.eventually(ctx, "all memory is given back", func(vms []vm, caches []cache) bool {
		free := len(vms) == len(serverNodes) && len(caches) == 0
		for _, v := range vms {
			free = free && v.Healthy && v.Memory == v.FreeMemory
		}
		return free
	})
	if err != nil {
		return err
	}
	for _, node := range slices.Concat(serverNodes, []string{managerNode}) {
		if err := s.running[node].Stop(patience); err != nil {
			return err
		}
	}
	return nil
}

// vm and cache are parts of the manager's answer to Describe.
type vm struct {
	ID         string `json:"id"`
	Memory     string `json:"memory"`
	FreeMemory string `json:"freeMemory"`
	Healthy    bool   `json:"healthy"`
}

type cache struct {
	ID     string `json:"id"`
	Grants []struct {
		VM vm `json:"vm"`
	} `json:"grants"`
}

// eventually waits until a condition on the manager's catalog holds.
func (s *service) eventually(ctx context.Context, what string, holds func([]vm, []cache) bool) error {
	end := time.Now().Add(patience)
	for {
		var vms struct {
			VMs []vm `json:"vms"`
		}
		var caches struct {
			Caches []cache `json:"caches"`
		}
		listed, err := s.list(ctx, "vm", &vms)
		also, err2 := s.list(ctx, "cache", &caches)
		if err = errors.Join(err, err2); err == nil && holds(vms.VMs, caches.Caches) {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("%v after all is healed it does not hold that %s: %w\n%s\n%s", patience, what, err, listed, also)
		}
		_ = waits(200 * time.Millisecond)(ctx) // never fails
	}
}

func (s *service) list(ctx context.Context, what string, into any) (string, error) {
	out, err := Run(ctx, s.network.at(managerNode, *binary, what, "list", "--json", "--manager", "http://"+s.network.address(managerNode)+":7070")...)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal([]byte(out), into)
}

// logs returns the end of each program's log.
func (s *service) logs() string {
	var all []string
	for node, p := range s.running {
		lines := strings.Split(p.Log(), "\n")
		all = append(all, fmt.Sprintf("-- %s:\n%s", node, strings.Join(lines[max(0, len(lines)-40):], "\n")))
	}
	return strings.Join(all, "\n")
}
