package redytier

import "iter"

// regionList is the list of a table's regions. Lists share what is equal: a clone costs a
// pointer per block, and a change copies the block of the region. So a change of one region
// costs the same in a cache of a thousand regions as in a small one, and a session finds what
// has changed by comparing blocks.
type regionList struct {
	n       int
	version uint64 // of the list: a block of another version belongs to an earlier list
	blocks  []*regionBlock
}

const (
	blockShift   = 5
	blockRegions = 1 << blockShift
)

type regionBlock struct {
	version uint64 // of the list that may change the block
	regions [blockRegions]region
}

func (l *regionList) len() int { return l.n }

// at returns region i to read.
func (l *regionList) at(i int) *region { return &l.blocks[i>>blockShift].regions[i&(blockRegions-1)] }

// edit returns region i to change, in a list that is not published yet.
func (l *regionList) edit(i int) *region {
	b := l.blocks[i>>blockShift]
	if b.version != l.version {
		own := *b
		own.version = l.version
		b, l.blocks[i>>blockShift] = &own, &own
	}
	return &b.regions[i&(blockRegions-1)]
}

// clone returns a list to change.
func (l *regionList) clone() regionList {
	return regionList{n: l.n, version: l.version + 1, blocks: append([]*regionBlock(nil), l.blocks...)}
}

// resize sets the number of regions. New ones are zero.
func (l *regionList) resize(n int) {
	for i := n; i < l.n; i++ {
		l.edit(i).reset() // for a later resize
	}
	blocks := (n + blockRegions - 1) >> blockShift
	for len(l.blocks) < blocks {
		l.blocks = append(l.blocks, &regionBlock{version: l.version})
	}
	l.n, l.blocks = n, l.blocks[:blocks]
}

// all yields the regions to read.
func (l *regionList) all() iter.Seq2[int, *region] {
	return func(yield func(int, *region) bool) {
		for i := range l.n {
			if !yield(i, l.at(i)) {
				return
			}
		}
	}
}

// changed yields the numbers of the regions that may differ from those of another list.
func (l *regionList) changed(from *regionList) iter.Seq[int] {
	return func(yield func(int) bool) {
		for b := range l.blocks {
			if b < len(from.blocks) && from.blocks[b] == l.blocks[b] && l.n == from.n {
				continue
			}
			for i := b << blockShift; i < min(l.n, (b+1)<<blockShift); i++ {
				if !yield(i) {
					return
				}
			}
		}
	}
}
