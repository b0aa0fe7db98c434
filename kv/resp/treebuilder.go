package resp

import "slices"

// treeBuilder makes a tree of entries that are added in their order. It changes each node once.
type treeBuilder struct {
	t    *scoreTree
	leaf []entry // entries of the next leaf
	size int     // of these
	low  entry   // separates the next leaf from the one before
	// levels are the children that belong to no node yet: levels[0] are leaves, levels[1] their parents.
	levels [][]child
}

// begin begins the tree, which must be empty.
func (b *treeBuilder) begin() { b.t.made, b.t.n = 0, 0 }

func (b *treeBuilder) add(e entry) {
	if n := len(b.leaf); n > 0 && compareEntries(b.leaf[n-1].score, b.leaf[n-1].member, e.score, e.member) >= 0 {
		b.t.damaged() // the tree that they are from
		return
	}
	e.member = slices.Clone(e.member)
	size := entrySize(e)
	if b.size+size > treeNode && len(b.leaf) > 0 {
		low := separator(b.leaf[len(b.leaf)-1], e)
		b.endLeaf()
		b.low = low
	}
	b.leaf, b.size = append(b.leaf, e), b.size+size
	b.t.n++
}

func (b *treeBuilder) endLeaf() {
	nd := b.t.another()
	writeLeaf(nd, b.leaf)
	b.push(0, child{nd.id, uint64(len(b.leaf)), b.low})
	b.leaf, b.size = b.leaf[:0], 0
}

// push adds a child to a level. It first makes a node of those that are there, if that is full.
func (b *treeBuilder) push(level int, c child) {
	if level == len(b.levels) {
		b.levels = append(b.levels, nil)
	}
	size := 0
	for _, of := range append(b.levels[level], c) {
		size += 16 + entrySize(of.low)
	}
	if size > treeNode && len(b.levels[level]) > 1 {
		b.endInner(level)
	}
	b.levels[level] = append(b.levels[level], c)
}

// endInner makes a node of the children of a level, and adds it to the next level.
func (b *treeBuilder) endInner(level int) {
	children := b.levels[level]
	nd := b.t.another()
	writeInner(nd, children)
	above := child{id: nd.id, low: children[0].low}
	for _, c := range children {
		above.count += c.count
	}
	b.levels[level] = children[:0]
	b.push(level+1, above)
}

// finish makes the last nodes and the root. There must be an entry.
func (b *treeBuilder) finish() {
	b.endLeaf()
	level := 0
	for ; level+1 < len(b.levels) || len(b.levels[level]) > 1; level++ {
		b.endInner(level)
	}
	b.t.root = b.levels[level][0].id
}
