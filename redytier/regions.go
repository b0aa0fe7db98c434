package redytier

// RegionInfo is one region as it stands.
type RegionInfo struct {
	From, To int64 // addresses
	VM       string
	State    RegionState
	// Epoch counts how often the region's memory was lost since it was added to the
	// cache. If it is the same before a write and after a read, what was written is
	// what is read: with each loss it is raised before the region fails, let alone
	// answers with other bytes (A46).
	Epoch uint64
	// Target and Copied are where the region is moving to and how many of its
	// bytes are there, while it moves.
	Target string
	Copied int64
}

// Regions describes the cache's regions, in the order of their addresses.
func (c *Cache) Regions() []RegionInfo {
	t := c.table.Load()
	infos := make([]RegionInfo, len(t.regions))
	for i := range t.regions {
		r, info := &t.regions[i], &infos[i]
		info.From, info.To = t.span(i)
		info.State, info.Epoch = r.state, r.epoch
		if r.link != nil {
			info.VM = r.link.grant.vm
		}
	}
	c.moves.describe(infos)
	return infos
}
