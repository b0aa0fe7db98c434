package redytier

import (
	"math/rand/v2"
	"slices"
)

// maxLives bounds the lives whose pieces are believed. A life is forgotten when the ring holds
// nothing of it, so this many need a process that is started again and again and writes little.
const maxLives = 256

// life is a part of the log's history, see pieces.
type life struct {
	Number uint64 `json:"number"`
	// Below is the lowest tail at which a later life started: the life's bytes are the log's up
	// to there.
	Below int64 `json:"below"`
}

// lives are those that may have pieces in the ring, the oldest first. The last one is the
// current one.
type lives []life

// begin returns the lives after a life starts at tail, in a ring that holds the log from begin
// on. The result shares no memory with l.
func (l lives) begin(tail, begin int64) lives {
	next := make(lives, 0, len(l)+1)
	for _, x := range l {
		if x.Below = min(x.Below, tail); x.Below > begin {
			next = append(next, x)
		}
	}
	next = next[max(0, len(next)+1-maxLives):]
	return append(next, life{rand.Uint64(), maxLog})
}

// current is the number of the current life.
func (l lives) current() uint64 { return l[len(l)-1].Number }

// wrote reports whether what a life wrote below an address is the log's.
func (l lives) wrote(number uint64, below int64) bool {
	i := slices.IndexFunc(l, func(x life) bool { return x.Number == number })
	return i >= 0 && below <= l[i].Below
}
