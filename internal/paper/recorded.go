package paper

// recorded has this project's own number for each claim that it bounds ([Claim].Own), by figure
// and text: of the rounds on any scale the least, or of a time the greatest. They were measured
// with --net rdma on a machine with two processors (docs/measured/paper*.json and manager.json).
// After a new run of all figures they are the least or most of its claims.jsonl, or ours of a claim
// that has no rounds.
var recorded = map[claimName]worst{
	{"fig13", "average time of a search among the paper's three million configurations, of an invented model"}: {most: 270},
	{"fig13", "median time of such a search, of the invented model"}:                                           {most: 270},

	{"fig15", "time to move 1 GB (here: of a cache that nobody uses)"}: {most: 0.108},

	{"fig18a", "one thread on Redy"}:                                           {least: 4.4},
	{"fig18a", "one thread: Redy over SSD"}:                                    {least: 43},
	{"fig18a", "one thread: Redy over SMB"}:                                    {least: 83},
	{"fig18a", "two threads on Redy"}:                                          {least: 9.76},
	{"fig18a", "two threads: Redy over SSD"}:                                   {least: 95},
	{"fig18a", "two threads: Redy over SMB"}:                                   {least: 161},
	{"fig18b", "and on SSD"}:                                                   {least: 1.557},
	{"fig18b", "one thread: Redy over SSD: at least twice in the paper"}:       {least: 13.6},
	{"fig18b", "one thread: Redy over SMB: at least twice in the paper"}:       {least: 25},
	{"fig18c", "one thread: Redy over SSD: at least twice in the paper"}:       {least: 21},
	{"fig18c", "one thread: Redy over SMB: at least twice in the paper"}:       {least: 39},
	{"fig18d", "four threads on Redy"}:                                         {least: 4.32},
	{"fig18d", "four threads: Redy over SMB"}:                                  {least: 125},
	{"fig18d", "four threads: Redy over SSD"}:                                  {least: 65.8},
	{"fig18e", "with four threads Redy over SSD: at least twice in the paper"}: {least: 29},
	{"fig18e", "with four threads Redy over SMB: at least twice in the paper"}: {least: 54},
	{"fig18f", "with four threads Redy over SSD: at least twice in the paper"}: {least: 27},
	{"fig18f", "with four threads Redy over SMB: at least twice in the paper"}: {least: 47},
	{"fig18g", "with four threads Redy over SSD: at least twice in the paper"}: {least: 20},
	{"fig18g", "with four threads Redy over SMB: at least twice in the paper"}: {least: 38},
	{"fig18h", "with four threads Redy over SSD: at least twice in the paper"}: {least: 15.6},
	{"fig18h", "with four threads Redy over SMB: at least twice in the paper"}: {least: 31},
	{"fig19", "all in local memory"}:                                           {least: 27.3},
	{"fig19", "all on Redy"}:                                                   {least: 7.62},
	{"fig19", "all on Redy over all on SMB"}:                                   {least: 209},
	{"fig19", "all on Redy over all on SSD"}:                                   {least: 109},
	{"fig20", "8 GB of cache over none"}:                                       {least: 75},
}

// claimName is a figure and the text of one of its claims.
type claimName struct{ figure, text string }

// worst is the worst round of a claim: the least, or of a time the greatest. The other is 0.
type worst struct{ least, most float64 }

// bounds returns the bounds of a claim with that worst round.
func (w worst) bounds() Bounds {
	if w.most != 0 {
		return nearOurTime(w.most)
	}
	return nearOurs(w.least)
}

// nearOurs bounds a number from below by four fifths of the least round that this project has
// measured: rounds of one program spread by 10 to 20 %.
func nearOurs(least float64) Bounds { return AtLeast(0.8 * least) }

// nearOurTime bounds a time or a cost likewise, by 1.25 times the greatest round.
func nearOurTime(most float64) Bounds { return AtMost(1.25 * most) }

// bounded sets the bounds of claims that this project's own numbers bound.
func bounded(figures []Figure) []Figure {
	for _, f := range figures {
		for i := range f.Claims {
			if c := &f.Claims[i]; c.Own {
				c.Holds = recorded[claimName{f.Name, c.Text}].bounds()
			}
		}
	}
	return figures
}
