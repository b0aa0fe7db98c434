package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
)

// redisLevels maps the names of levels in Redis's CONFIG. If a level has two names, CONFIG GET
// returns the first.
var redisLevels = []struct {
	name  string
	level slog.Level
}{
	{"debug", slog.LevelDebug}, {"notice", slog.LevelInfo}, {"verbose", slog.LevelInfo}, {"warning", slog.LevelWarn},
}

// errOpening is the error of a setting of the store that is not open yet.
var errOpening = errors.New("the store is being opened")

// settings returns the configuration for CONFIG GET and CONFIG SET, under Redis's names. opened returns the
// store, or nil while it is being opened.
func (f *serveFlags) settings(opened func() *kv.Store, listeners []listener, level *slog.LevelVar) []resp.Setting {
	constant := func(name, value string) resp.Setting {
		return resp.Setting{Name: name, Get: func() string { return value }}
	}
	hosts, port, tlsPort := bound(listeners)
	protected := "no"
	if f.listen.protected {
		protected = "yes"
	}
	settings := []resp.Setting{
		constant("bind", hosts), constant("port", port), constant("tls-port", tlsPort),
		constant("protected-mode", protected), constant("dir", f.storage.dir),
		{
			Name: "maxmemory",
			Get: func() string {
				store := opened()
				if store == nil {
					return strconv.FormatInt(int64(f.storage.memory), 10)
				}
				m := store.Metrics()
				return strconv.FormatInt(m.Log.MemoryBudget+m.ReadCache.Budget, 10)
			},
			Set: func(value string) error { return setMemory(opened(), value) },
		},
		{
			Name: "sample-accesses",
			Get: func() string {
				sampling := f.storage.sample
				if store := opened(); store != nil {
					sampling = store.Sampling()
				}
				return map[bool]string{true: "yes", false: "no"}[sampling]
			},
			Set: func(value string) error { return setSampling(opened(), value) },
		},
		{
			Name: "loglevel",
			Get:  func() string { return levelName(level.Level()) },
			Set:  func(value string) error { return setLevel(level, value) },
		},
	}
	if f.storage.maxData != 0 { // the cache's size is Redis's maxmemory
		settings = slices.DeleteFunc(settings, func(s resp.Setting) bool { return s.Name == "maxmemory" })
	}
	return settings
}

// bound returns the hosts of the listeners, as in Redis's bind, and the port of the first plain one
// and of the first one for TLS; "0": there is none.
func bound(listeners []listener) (hosts, port, tlsPort string) {
	port, tlsPort = "0", "0"
	var all []string
	for _, ln := range listeners {
		host, at, _ := net.SplitHostPort(ln.Addr().String())
		if !slices.Contains(all, host) {
			all = append(all, host)
		}
		switch {
		case ln.encrypted && tlsPort == "0":
			tlsPort = at
		case !ln.encrypted && port == "0":
			port = at
		}
	}
	return strings.Join(all, " "), port, tlsPort
}

// setMemory sets the store's memory, as --memory does.
func setMemory(store *kv.Store, value string) error {
	size, err := units.ParseSize(value)
	if err != nil {
		return errors.New("argument must be a memory value")
	}
	if store == nil {
		return errOpening
	}
	return store.SetMemory(context.Background(), int64(size))
}

// setSampling begins or ends the sampling of accesses, as --sample-accesses does.
func setSampling(store *kv.Store, value string) error {
	if value != "yes" && value != "no" {
		return errors.New("argument must be 'yes' or 'no'")
	}
	if store == nil {
		return errOpening
	}
	return store.SetSampling(value == "yes")
}

func levelName(level slog.Level) string {
	for _, l := range redisLevels {
		if level <= l.level {
			return l.name
		}
	}
	return redisLevels[len(redisLevels)-1].name
}

func setLevel(level *slog.LevelVar, value string) error {
	for _, l := range redisLevels {
		if l.name == value {
			level.Set(l.level)
			return nil
		}
	}
	return errors.New("argument(s) must be one of the following: debug, verbose, notice, warning")
}
