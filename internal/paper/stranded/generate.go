package stranded

import (
	"math"
	"math/rand/v2"
)

// Shares of VMs by number of cores, and by GB of memory per core.
var (
	coreShares   = []choice{{1, 20}, {2, 30}, {4, 25}, {8, 15}, {16, 7}, {24, 3}}
	memoryShares = []choice{{1.75, 15}, {2, 25}, {3.5, 10}, {4, 35}, {7, 5}, {8, 10}}
	// Lifetimes in hours, each the median of a lognormal distribution. Most VMs end within an
	// hour, but most cores belong to a few that stay.
	lifeShares = []choice{{0.3, 62}, {4, 25}, {60, 13}}
)

type choice struct{ value, share float64 }

func draw(rng *rand.Rand, choices []choice) float64 {
	sum := 0.0
	for _, c := range choices {
		sum += c.share
	}
	at := rng.Float64() * sum
	for _, c := range choices {
		if at -= c.share; at < 0 {
			return c.value
		}
	}
	return choices[len(choices)-1].value
}

func mean(choices []choice) float64 {
	sum, shares := 0.0, 0.0
	for _, c := range choices {
		sum += c.value * c.share
		shares += c.share
	}
	return sum / shares
}

const (
	day        = 24 * 3600.0
	lifeSpread = 0.8 // sigma of the lognormal distribution of lifetimes
	// coresWanted is the average share of the cluster's cores that VMs request.
	coresWanted = 0.75
	// swing is the relative rise of arrivals above their average at noon, and their fall below
	// it at night.
	swing = 0.6
)

// Generate makes a synthetic trace of about count VMs that keep a cluster busy over days and
// nights. The same seed gives the same trace.
func Generate(seed uint64, count int, cluster Cluster) []VM {
	rng := rand.New(rand.NewPCG(seed, 1))
	life := mean(lifeShares) * 3600 * math.Exp(lifeSpread*lifeSpread/2)
	// Little's law: the number of VMs present is the arrival rate times the lifetime.
	standing := coresWanted * float64(cluster.Servers*cluster.Cores) / mean(coreShares)
	rate := standing / life
	var vms []VM
	for range int(standing) { // VMs that exist when the trace begins
		vms = append(vms, newVM(rng, 0, lastingLife(rng)))
	}
	for at := 0.0; len(vms) < count; {
		// Thinning: draw arrivals at the highest rate and accept a share that depends on the
		// time of day.
		at += rng.ExpFloat64() / (rate * (1 + swing))
		if rng.Float64()*(1+swing) < 1+swing*math.Sin(2*math.Pi*(at/day-0.25)) {
			vms = append(vms, newVM(rng, at, lifetime(rng)))
		}
	}
	return vms
}

func newVM(rng *rand.Rand, created, life float64) VM {
	cores := draw(rng, coreShares)
	return VM{
		Created: math.Round(created), Deleted: math.Round(created + math.Max(life, 60)),
		Cores: int(cores), MemoryGB: cores * draw(rng, memoryShares),
	}
}

// lifetime draws the lifetime of a new VM, in seconds.
func lifetime(rng *rand.Rand) float64 {
	return draw(rng, lifeShares) * 3600 * math.Exp(lifeSpread*rng.NormFloat64())
}

// lastingLife draws the remaining lifetime of a VM that exists at a random moment. Long-lived
// VMs are met more often, at a uniform point of their life.
func lastingLife(rng *rand.Rand) float64 {
	met := make([]choice, len(lifeShares))
	for i, c := range lifeShares {
		met[i] = choice{c.value, c.share * c.value}
	}
	return draw(rng, met) * 3600 * math.Exp(lifeSpread*rng.NormFloat64()+lifeSpread*lifeSpread) * rng.Float64()
}
