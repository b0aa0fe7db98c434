package menu

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/units"
	"github.com/redykv/redykv/manager/plan"
)

// Version is the version of the format.
const Version = 1

// Bounds of a menu.
const (
	maxTypes  = 1000
	maxSold   = 100
	maxName   = 100
	maxFile   = 4 << 20
	minMemory = 4 << 10
	maxMemory = 1 << 50
	maxCores  = 1 << 12
	maxDist   = 64
	maxCount  = 1 << 20
	maxNotice = Duration(24 * time.Hour)
	maxMean   = Duration(100 * 365 * 24 * time.Hour)
)

// Menu lists the VM types that a cloud sells.
type Menu struct {
	Version int    `json:"version"`
	Types   []Type `json:"types"`
}

// Type is a VM type.
type Type struct {
	Name   string `json:"name"`
	Memory Size   `json:"memory"` // that one VM lends
	Cores  int    `json:"cores"`  // server threads that it can run; 0: stranded memory
	Sold   []Sold `json:"sold"`
}

// Sold is an offer of a type in one cloud region at one distance.
type Sold struct {
	CloudRegion       string   `json:"cloud_region"`
	Distance          int      `json:"distance"`
	Price             float64  `json:"price"`
	Available         *int     `json:"available,omitempty"`
	MeanTimeToFailure Duration `json:"mean_time_to_failure,omitempty"`
	Spot              *Spot    `json:"spot,omitempty"`
}

// Spot is an offer of a type as a spot VM, which can be reclaimed.
type Spot struct {
	Price             float64  `json:"price"`
	Lowest            float64  `json:"lowest"`
	Highest           float64  `json:"highest"`
	Available         *int     `json:"available,omitempty"`
	Notice            Duration `json:"notice"`
	MeanTimeToReclaim Duration `json:"mean_time_to_reclaim,omitempty"`
}

// Size is a number of bytes, in JSON with a unit: 16GiB.
type Size uint64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	n, err := units.ParseSize(string(text))
	*s = Size(n)
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (s Size) MarshalText() ([]byte, error) { return []byte(units.Size(s).String()), nil }

// Duration is a duration, in JSON in Go's format: 30s, 4h.
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

//go:embed example.json
var example []byte

// Example returns the small menu that comes with the program: VMs that fit a laptop, at a
// cloud's prices.
func Example() Menu {
	m, err := Parse(example)
	if err != nil {
		panic(err) // a test reads it
	}
	return m
}

// Load reads a menu from a file.
func Load(path string) (_ Menu, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Menu{}, fmt.Errorf("menu: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Menu{}, fmt.Errorf("menu: %w", err)
	}
	m, err := Parse(content)
	if err != nil {
		return Menu{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Parse parses a menu and checks it.
func Parse(content []byte) (Menu, error) {
	if len(content) > maxFile {
		return Menu{}, fmt.Errorf("menu: longer than %v", units.Size(maxFile))
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	var m Menu
	if err := d.Decode(&m); err != nil {
		return Menu{}, fmt.Errorf("menu: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Menu{}, fmt.Errorf("menu: there is text after its end; want one JSON object")
	}
	if err := m.check(); err != nil {
		return Menu{}, fmt.Errorf("menu: %w", err)
	}
	return m, nil
}

// Regions lists the cloud regions, in the order in which they first occur.
func (m Menu) Regions() []string {
	var all []string
	for _, t := range m.Types {
		for _, s := range t.Sold {
			if !slices.Contains(all, s.CloudRegion) {
				all = append(all, s.CloudRegion)
			}
		}
	}
	return all
}

// RegionError names a cloud region that is not on the menu, and those that are.
type RegionError struct {
	Asked string
	Known []string
}

func (e *RegionError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("cloud region %.100q: there are no cloud regions here", e.Asked)
	}
	return fmt.Sprintf("cloud region %.100q: want one of %s", e.Asked, strings.Join(e.Known, ", "))
}

func (m Menu) checkRegion(name string) error {
	if known := m.Regions(); !slices.Contains(known, name) {
		return &RegionError{name, known}
	}
	return nil
}

func (m Menu) check() error {
	if m.Version != Version {
		return fmt.Errorf("version %d: want %d", m.Version, Version)
	}
	if len(m.Types) == 0 || len(m.Types) > maxTypes {
		return fmt.Errorf("%d types: want 1 to %d", len(m.Types), maxTypes)
	}
	names := make(map[string]bool)
	for _, t := range m.Types {
		if names[t.Name] {
			return fmt.Errorf("type %q is listed twice", t.Name)
		}
		names[t.Name] = true
		if err := t.check(); err != nil {
			return fmt.Errorf("type %.100q: %w", t.Name, err)
		}
	}
	return nil
}

func (t Type) check() error {
	switch {
	case t.Name == "" || len(t.Name) > maxName:
		return fmt.Errorf("name of %d bytes: want 1 to %d", len(t.Name), maxName)
	case t.Memory < minMemory || t.Memory > maxMemory:
		return fmt.Errorf("memory %v: want %v to %v", units.Size(t.Memory), units.Size(minMemory), units.Size(maxMemory))
	case t.Cores < 0 || t.Cores > maxCores:
		return fmt.Errorf("cores %d: want 0 to %d", t.Cores, maxCores)
	case len(t.Sold) == 0 || len(t.Sold) > maxSold:
		return fmt.Errorf("sold in %d places: want 1 to %d", len(t.Sold), maxSold)
	}
	places := make(map[Kind]bool)
	for _, s := range t.Sold {
		place := Kind{CloudRegion: s.CloudRegion, Distance: s.Distance}
		if places[place] {
			return fmt.Errorf("sold twice in cloud region %q at distance %d", s.CloudRegion, s.Distance)
		}
		places[place] = true
		if err := s.check(); err != nil {
			return fmt.Errorf("sold in %.100q: %w", s.CloudRegion, err)
		}
	}
	return nil
}

func (s Sold) check() error {
	switch {
	case s.CloudRegion == "" || len(s.CloudRegion) > maxName:
		return fmt.Errorf("cloud_region of %d bytes: want 1 to %d", len(s.CloudRegion), maxName)
	case s.Distance < 0 || s.Distance > maxDist:
		return fmt.Errorf("distance %d: want 0 (not known) to %d", s.Distance, maxDist)
	case !isPrice(s.Price):
		return fmt.Errorf("price %v: want 0 to %v", s.Price, plan.MaxPrice.Dollars())
	case s.Available != nil && (*s.Available < 0 || *s.Available > maxCount):
		return fmt.Errorf("available %d: want 0 to %d", *s.Available, maxCount)
	case s.MeanTimeToFailure < 0 || s.MeanTimeToFailure > maxMean:
		return fmt.Errorf("mean_time_to_failure %v: want 0 (never) to %v", time.Duration(s.MeanTimeToFailure), time.Duration(maxMean))
	case s.Spot == nil:
		return nil
	}
	if err := s.Spot.check(); err != nil {
		return fmt.Errorf("spot: %w", err)
	}
	return nil
}

func (s Spot) check() error {
	switch {
	case !isPrice(s.Lowest) || !isPrice(s.Highest) || !(s.Lowest <= s.Price && s.Price <= s.Highest) || s.Lowest == 0 && s.Highest > 0:
		return fmt.Errorf("price %v between %v and %v: want lowest <= price <= highest, up to %v, and all above 0 unless all are 0",
			s.Price, s.Lowest, s.Highest, plan.MaxPrice.Dollars())
	case s.Available != nil && (*s.Available < 0 || *s.Available > maxCount):
		return fmt.Errorf("available %d: want 0 to %d", *s.Available, maxCount)
	case s.Notice < 0 || s.Notice > maxNotice:
		return fmt.Errorf("notice %v: want 0 to %v", time.Duration(s.Notice), time.Duration(maxNotice))
	case s.MeanTimeToReclaim < 0 || s.MeanTimeToReclaim > maxMean:
		return fmt.Errorf("mean_time_to_reclaim %v: want 0 (never) to %v", time.Duration(s.MeanTimeToReclaim), time.Duration(maxMean))
	}
	return nil
}

// isPrice is written so that NaN fails it.
func isPrice(p float64) bool { return p >= 0 && p <= plan.MaxPrice.Dollars() }
