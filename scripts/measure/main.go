// Command measure keeps the measurements of docs/measured.md.
//
//	go run ./scripts/measure run all         measure every part
//	go run ./scripts/measure run store       measure one part
//	go run ./scripts/measure render          write the tables into docs/measured.md
//
// Run builds redykv, runs the commands of a part, and writes their rows with machine, date
// and revision to docs/measured/PART.json. Render replaces the text of docs/measured.md
// between the lines <!-- measured PART --> and <!-- end --> by the table of the part.
// Run both in the repository's root, the first on an idle machine. The part manager-scale
// needs etcd in PATH, such as by PATH=$PATH:$(dirname $(scripts/etcd)), and the part outgrows what
// scripts/etcd and scripts/kubernetes build, and root.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/machine"
)

// part is one table.
type part struct {
	name string
	// commands are run for the part: {bin} is redykv, {json} the file for rows, {dir} a
	// directory. A part without commands was measured by hand, on a machine or for a time that
	// no command here has; its rows are kept as they are.
	commands []string
	columns  []string // FIELD, A/B, or either with =HEADING; fields of rows within rows as a.b
	skip     string   // FIELD=VALUE of rows that have no place in the table
}

const (
	storeColumns = "op mode threads value_size mops mops_min mops_max limit_mops mops/limit_mops=of_limit allocs_per_op"
	ycsbColumns  = "device distribution threads mops mops_min mops_max p50_us p99_us ratio_to_ssd=times_ssd ratio_to_smb=times_smb hit_memory hit_cache hit_redy hit_ssd"
	cacheColumns = "transport net c s b q op size depth mean_us p99_us mops mean_over_raw mops_over_raw mops_over_rawq=mops_over_raw_q allocs_per_op"
)

// parts are in the order of docs/measured.md.
var parts = []part{
	{name: "store", commands: []string{
		"{bin} bench store --records 100000000 --distributions uniform --ops read,upsert,rmw --modes plain,batch --json {json}",
		"{bin} bench store --records 8000000 --value-size 1024 --distributions uniform --ops read,upsert,rmw --modes batch --json {json}",
	}, columns: strings.Fields(storeColumns + " copy_mops mops/copy_mops=of_copying")},
	{name: "store-xeon", columns: strings.Fields("op mode threads mops mops_min mops_max limit_mops share_of_limit=of_limit")},
	{name: "store-aims", columns: strings.Fields("what aim measured")},
	{name: "pebble", commands: []string{
		"{bin} bench store --records 10000000 --peer pebble --distributions uniform --ops read,mixed --modes plain,batch --json {json}",
	}, columns: strings.Fields("store " + storeColumns + " ratio_to_peer")},
	{name: "cold", commands: []string{
		"{bin} bench store --records 50000000 --cold --ops read --modes batch,async --distributions uniform --json {json}",
	}, columns: strings.Fields(storeColumns + " hit_memory hit_device")},
	{name: "device", commands: []string{
		"{bin} bench device --op read,write,grow --block 4KiB --depth 1,32,128 --json {json}",
		"{bin} bench device --op read --block 512 --verify blocks --depth 1,32,128 --json {json}",
		"{bin} bench device --op store --block 64 --depth 1,32,128 --json {json}",
	}, columns: strings.Fields("device op block depth iops fio_iops iops/fio_iops=over_fio mean_us fio_mean_us p99_us cpu_us allocs_per_op")},
	{name: "device-aims", columns: strings.Fields("what aim measured")},
	{name: "cache", commands: []string{
		"{bin} bench cache --transport shm --net none --config 1,0,1,1 --json {json}",
		"{bin} bench cache --transport shm --net rdma --config 1,0,1,1 --json {json}",
		"{bin} bench cache --transport tcp --mode callback --config 1,0,1,1 --config 1,1,64,16 --json {json}",
	}, columns: strings.Fields(cacheColumns), skip: "path=fabric"},
	{name: "migrate", commands: []string{
		"{bin} bench migrate --rounds 15 --json {json}",
	}, columns: strings.Fields("transport net pause op capacity seconds of_copy before.mops=before during.mops=during during_over_before during_over_beside")},
	{name: "redy-aims", columns: strings.Fields("what aim measured")},
	{name: "compare", commands: []string{
		"{bin} ycsb compare --devices redy,smb,ssd --threads 1,2 --rounds 5 --distributions uniform,zipfian --report= --json {json}",
	}, columns: strings.Fields(ycsbColumns)},
	{name: "compare-read-cache", commands: []string{
		"{bin} ycsb compare --devices redy,ssd --threads 1,2 --rounds 5 --distributions zipfian --read-cache 0.5 --report= --json {json}",
	}, columns: strings.Fields(ycsbColumns)},
	{name: "suite", commands: []string{
		"{bin} ycsb suite --stores redykv,map,empty --operations 600000 --rounds 5 --json {json}",
	}, columns: strings.Fields("workload store threads ops=ops_a_second ops_least ops_most p999_us max_us failed")},
	{name: "server", commands: []string{
		"scripts/bench-server --bin {bin} --json {json}",
	}, columns: strings.Fields("op value connections pipeline redis.ops=redis redykv.ops=redykv ratio p99_ratio")},
	{name: "paper", commands: []string{
		"{bin} paper run all --scale quick --out {dir}",
		"mv {dir}/claims.jsonl {json}",
	}, columns: strings.Fields("figure claim unit paper ours least most bound holds")},
	{name: "paper-stores", columns: strings.Fields("figure paper measured")},
	{name: "paper-values", columns: strings.Fields("figure paper measured")},
	{name: "paper-caches", columns: strings.Fields("figure paper measured")},
	{name: "manager", columns: strings.Fields("what aim measured")},
	{name: "manager-scale", commands: []string{
		"{bin} bench manager --catalog memory --json {json}",
		"{bin} bench manager --catalog pebble --delay 5ms --json {json}",
		"{bin} bench manager --catalog pebble --delay 5ms --tokens --prices --json {json}",
		"{bin} bench manager --catalog pebble --delay 5ms --tokens --prices --watches --json {json}",
		"{bin} bench manager --catalog etcd --json {json}",
		"{bin} bench manager --catalog etcd --delay 5ms --json {json}",
	}, columns: strings.Fields("catalog phase caches beating cpu rss_bytes beats_per_s beat_p50_ms beat_p999_ms beats_failed registrations_per_s allocations_per_s allocate_p50_ms allocate_p99_ms refused failed told told_s restart_s takeover_s beats_back_s")},
	{name: "outgrows", commands: []string{
		"go test ./packaging/kubernetes -count 1 -run TestOutgrows -outgrows.memory 1024 -outgrows.json {json} -timeout 1h",
	}, columns: strings.Fields("what before=replies_a_second_before least=least_share took_s below_s whole_s failed wrong replies=replies_checked price=dollars_an_hour")},
	{name: "tcp", columns: strings.Fields("config=c,s,b,q_of_reads kernel=placed_by_the_kernel,_µs apart=a_processor_each,_µs")},
}

// measured is the content of docs/measured/PART.json.
type measured struct {
	Machine  string            `json:"machine"`
	Date     string            `json:"date"`
	Revision string            `json:"revision"`
	Commands []string          `json:"commands"`
	Rows     []json.RawMessage `json:"rows"`
}

const (
	folder   = "docs/measured"
	document = "docs/measured.md"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "render":
		return render()
	case len(args) > 1 && args[0] == "run":
		return run(args[1:])
	}
	return errors.New("want run PART..., run all, or render")
}

func run(names []string) error {
	work, err := os.MkdirTemp("", "measure-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	bin := filepath.Join(work, "redykv")
	if err := execute("go", "build", "-o", bin, "./cmd/redykv"); err != nil {
		return err
	}
	revision, err := exec.Command("git", "describe", "--always", "--dirty=+").Output()
	if err != nil {
		return fmt.Errorf("revision: %w", err)
	}
	for _, name := range names {
		if name == "all" {
			continue
		}
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("unknown part %q: want all, or names of parts in scripts/measure/main.go", name)
		}
		if parts[i].commands == nil {
			return fmt.Errorf("part %s was measured by hand", name)
		}
	}
	for _, p := range parts {
		if p.commands == nil || !slices.Contains(names, p.name) && !slices.Contains(names, "all") {
			continue
		}
		m := measured{Machine: machine.Describe(), Date: time.Now().UTC().Format(time.DateOnly), Revision: strings.TrimSpace(string(revision))}
		rows := filepath.Join(work, "rows")
		for _, c := range p.commands {
			args := strings.Fields(strings.NewReplacer("{bin}", bin, "{json}", rows, "{dir}", filepath.Join(work, "out")).Replace(c))
			if err := execute(args[0], args[1:]...); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			shown := strings.TrimSpace(strings.NewReplacer("{bin}", "redykv", " --json {json}", "", " -outgrows.json {json}", "", " --report=", "").Replace(c))
			if !strings.HasPrefix(shown, "mv ") {
				m.Commands = append(m.Commands, shown)
			}
			text, err := os.ReadFile(rows)
			if errors.Is(err, os.ErrNotExist) {
				continue // the part's next command writes them
			}
			if err != nil {
				return err
			}
			for line := range bytes.Lines(text) {
				m.Rows = append(m.Rows, json.RawMessage(bytes.TrimSpace(line)))
			}
			if err := os.Remove(rows); err != nil {
				return err
			}
		}
		text, err := json.MarshalIndent(m, "", "\t")
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, p.name+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func execute(name string, args ...string) error {
	fmt.Fprintln(os.Stderr, "+", name, strings.Join(args, " "))
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c.Run()
}

func render() error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	if text, err = rendered(text, folder); err != nil {
		return err
	}
	return os.WriteFile(document, text, 0o644)
}

// rendered returns the document with the tables of all parts that folder has.
func rendered(text []byte, folder string) ([]byte, error) {
	for _, p := range parts {
		data, err := os.ReadFile(filepath.Join(folder, p.name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		table, err := p.table(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		before, rest, found := bytes.Cut(text, []byte("<!-- measured "+p.name+" -->\n"))
		_, after, ended := bytes.Cut(rest, []byte("<!-- end -->"))
		if !found || !ended {
			return nil, fmt.Errorf("%s has no lines <!-- measured %s --> and <!-- end -->", document, p.name)
		}
		text = slices.Concat(before, []byte("<!-- measured "+p.name+" -->\n"), table, []byte("<!-- end -->"), after)
	}
	return text, nil
}

// table returns the part's table in Markdown, stamped with its origin.
func (p part) table(data []byte) ([]byte, error) {
	var m measured
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "`%s`; %s; %s, revision %s.\n\n", strings.Join(m.Commands, "`, `"), m.Machine, m.Date, m.Revision)
	var fields, heads []string
	for _, c := range p.columns {
		field, head, found := strings.Cut(c, "=")
		if !found {
			head = field
		}
		fields, heads = append(fields, field), append(heads, strings.ReplaceAll(head, "_", " "))
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for _, line := range m.Rows {
		var row map[string]any
		if err := json.Unmarshal(line, &row); err != nil {
			return nil, err
		}
		if field, value, found := strings.Cut(p.skip, "="); found && row[field] == value {
			continue
		}
		for _, f := range fields {
			fmt.Fprintf(&b, "| %s ", cell(row, f))
		}
		b.WriteString("|\n")
	}
	return b.Bytes(), nil
}

// cell returns a value as the table shows it: numbers with three significant digits.
func cell(row map[string]any, field string) string {
	if a, b, quotient := strings.Cut(field, "/"); quotient {
		over, _ := row[a].(float64)
		under, _ := row[b].(float64)
		if under == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", over/under)
	}
	if outer, inner, nested := strings.Cut(field, "."); nested {
		within, _ := row[outer].(map[string]any)
		return cell(within, inner)
	}
	switch v := row[field].(type) {
	case nil:
		return ""
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case float64:
		if 0 < v && v < 0.001 {
			return "<0.001"
		}
		if v == float64(int64(v)) || math.Abs(v) >= 1000 {
			return fmt.Sprintf("%.0f", v)
		}
		return fmt.Sprintf("%.3g", v)
	default:
		return strings.ReplaceAll(fmt.Sprint(v), "|", "\\|")
	}
}
