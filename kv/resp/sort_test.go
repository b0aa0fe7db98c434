package resp

import "testing"

// TestSort sorts a list by its elements and by other keys, and stores the result.
func TestSort(t *testing.T) {
	_, addr := start(t, inMemory(), Options{})
	p := dial(t, addr)
	for _, step := range []struct {
		command []string
		want    string
	}{
		{[]string{"RPUSH", "l", "3", "1", "10", "2"}, ":4"},
		{[]string{"MSET", "w_1", "30", "w_2", "20", "w_3", "10", "w_10", "40"}, "+OK"},
		{[]string{"SORT", "l"}, `["1" "2" "3" "10"]`},
		{[]string{"SORT", "l", "ALPHA", "DESC"}, `["3" "2" "10" "1"]`},
		{[]string{"SORT", "l", "BY", "w_*", "LIMIT", "0", "2"}, `["3" "2"]`},
		{[]string{"SORT_RO", "l", "BY", "w_*", "GET", "#", "GET", "w_*"}, `["3" "10" "2" "20" "1" "30" "10" "40"]`},
		{[]string{"SORT", "l", "BY", "nosort"}, `["3" "1" "10" "2"]`},
		{[]string{"SORT", "l", "DESC", "STORE", "m"}, ":4"},
		{[]string{"LRANGE", "m", "0", "-1"}, `["10" "3" "2" "1"]`},
		{[]string{"SORT", "missing", "STORE", "m"}, ":0"},
		{[]string{"EXISTS", "m"}, ":0"},
		{[]string{"RPUSH", "l", "x"}, ":5"},
		{[]string{"SORT", "l"}, "-ERR One or more scores can't be converted into double"},
	} {
		if got := p.do(step.command...); got != step.want {
			t.Errorf("%q: %s, want %s", step.command, got, step.want)
		}
	}
}
