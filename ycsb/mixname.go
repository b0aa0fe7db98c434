package ycsb

import (
	"cmp"

	"github.com/redykv/redykv/internal/bench"
)

// MixName names a [Mix]: a workload of YCSB, or updates alone. The empty name is [MixC].
type MixName string

// The names.
const (
	MixA     MixName = "a"     // as many reads as updates
	MixB     MixName = "b"     // 95 % reads, 5 % updates
	MixC     MixName = "c"     // reads alone
	MixF     MixName = "f"     // as many reads as read-modify-writes
	MixWrite MixName = "write" // updates alone
)

// MixNames lists all of them.
var MixNames = []MixName{MixA, MixB, MixC, MixF, MixWrite}

// Describe says what the operations are.
func (n MixName) Describe() string {
	return map[MixName]string{
		MixA: "as many updates as reads", MixB: "5 % updates, 95 % reads", MixC: "reads alone",
		MixF: "as many read-modify-writes as reads", MixWrite: "updates alone",
	}[cmp.Or(n, MixC)]
}

var mixes = map[MixName]Mix{
	MixA:     {Read: 0.5, Update: 0.5},
	MixB:     {Read: 0.95, Update: 0.05},
	MixC:     {Read: 1},
	MixF:     {Read: 0.5, ReadModifyWrite: 0.5},
	MixWrite: {Update: 1},
}

// ParseMix returns the mix of a name.
func ParseMix(name string) (MixName, error) { return bench.Parse("mix", name, MixNames) }

// mix returns the shares of the operations.
func (n MixName) mix() Mix { return mixes[cmp.Or(n, MixC)] }

// Writes says whether some operations write.
func (n MixName) Writes() bool { return n != "" && n != MixC }

// finds returns the share of the operations that need the record's old value.
func (n MixName) finds() float64 { return n.mix()[Read] + n.mix()[ReadModifyWrite] }
