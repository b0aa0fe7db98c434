package main

import "strings"

// part is one table.
type part struct {
	name string
	// commands are run for the part: {bin} is redykv, {json} the file for rows, {dir} a
	// directory.
	commands []string
	// statistic says what a figure is, of all that was measured for it. It is kept in the record.
	statistic string
	columns   []string // FIELD, A/B, or either with =HEADING; fields of rows within rows as a.b
	skip      string   // FIELD=VALUE of rows that have no place in the table

	from     string // the part whose record is shown; empty: this one's
	document string // empty: docs/measured.md
	picture  string // SVG file for the throughput of a comparison; empty: none
	// sentence stands below the table. {least FIELD}, {most FIELD} and {count FIELD=VALUE} are
	// of its rows.
	sentence string
	aims     []aim // instead of columns: the table compares catalogs with these
}

const (
	ratiosOfRounds = "the round of median throughput; times ssd, times smb and of disk: medians of the rounds' ratios"

	storeColumns = "op mode threads value_size mops mops_min mops_max limit_mops of_limit allocs_per_op"
	ycsbColumns  = "device distribution threads read_cache mops mops_min mops_max p50_us p99_us ratio_to_ssd=times_ssd ratio_to_smb=times_smb of_disk hit_memory hit_cache hit_redy hit_ssd"
	cacheColumns = "transport net c s b q op size depth mean_us p99_us mops mean_over_raw mops_over_raw mops_over_rawq=mops_over_raw_q allocs_per_op"

	paperStatistic = "the median of the rounds, with the least and the most; what a claim compares is of one round"
	paperColumns   = "figure claim unit paper ours=median_of_rounds least most bound verdict reason warning"
	paperSentence  = "Of the claims with a bound {count verdict=holds} hold, and {count verdict=does not hold} do not. Of the others {count verdict=not measured} were not measured, {count verdict=a constant} are constants, and {count verdict=reported} have no bound."
)

// parts are in the order of docs/measured.md.
var parts = []part{
	{name: "store", statistic: "the slice of median throughput; of limit and of copying: medians of the slices' ratios", commands: []string{
		"{bin} bench store --records 100000000 --distributions uniform --ops read,upsert,rmw --modes plain,batch --json {json}",
		"{bin} bench store --records 8000000 --value-size 1024 --distributions uniform --ops read,upsert,rmw --modes batch --json {json}",
	}, columns: strings.Fields(storeColumns + " value_bytes_read value_bytes_written copy_mops of_copying")},
	{name: "pebble", statistic: "the slice of median throughput; of limit and ratio to peer: medians of the slices' ratios", commands: []string{
		"{bin} bench store --records 10000000 --peer pebble --distributions uniform --ops read,mixed --modes plain,batch --json {json}",
	}, columns: strings.Fields("store " + storeColumns + " ratio_to_peer")},
	{name: "cold", statistic: "the slice of median throughput; of limit: the median of the slices' ratios", commands: []string{
		"{bin} bench store --records 50000000 --cold --ops read --modes batch,async --distributions uniform --json {json}",
	}, columns: strings.Fields(storeColumns + " hit_memory hit_device")},
	{name: "durable", statistic: "the slice of median rate; ratios: medians of the rounds' ratios", commands: []string{
		"{bin} bench store --durable --value-size 100 --peer pebble --duration 9s --json {json}",
	}, columns: strings.Fields("store goroutines writes_per_s=writes_a_second writes_per_s_least=least writes_per_s_most=most p50_us p99_us over_pebble latency_over_disk")},
	{name: "tails", statistic: "medians of the rounds, ratios too; the maximum: of all rounds", commands: []string{
		"{bin} bench store --during checkpoint,compaction,growth,commit,flush,resize --records 10000000 --duration 10s --json {json}",
	}, columns: strings.Fields("event=during records_used happened rate p50_us p99_us p999_us p999_over_quiet max_us hit_device")},
	{name: "device", statistic: "the slice of median throughput; over the better fio: the median of the slices' ratios", commands: []string{
		"{bin} bench device --op read,write,grow --block 4KiB --depth 1,32,128 --json {json}",
		"{bin} bench device --op read --block 512 --verify blocks --depth 1,32,128 --json {json}",
		"{bin} bench device --op store --block 64 --depth 1,32,128 --json {json}",
	}, columns: strings.Fields("device op block depth iops fio_iops fio_fast_iops fio_batch=fio_fast_batch fio_pages=fio_fast_pages of_fio=over_the_better_fio mean_us fio_mean_us fio_fast_mean_us p99_us cpu_us allocs_per_op")},
	{name: "cache", statistic: "the slice of median throughput; over raw: medians of the slices' ratios", commands: []string{
		"{bin} bench cache --transport shm --net none --config 1,0,1,1 --json {json}",
		"{bin} bench cache --transport shm --net rdma --config 1,0,1,1 --json {json}",
		"{bin} bench cache --transport tcp --mode callback --config 1,0,1,1 --config 1,1,64,16 --json {json}",
	}, columns: strings.Fields(cacheColumns), skip: "path=fabric"},
	{name: "migrate", statistic: "each field the median of the rounds, ratios too", commands: []string{
		"{bin} bench migrate --rounds 15 --json {json}",
	}, columns: strings.Fields("transport net pause op capacity seconds of_copy before.mops=before during.mops=during during_over_before during_over_beside")},
	{name: "refill", statistic: "each field the median of the rounds, ratios too; of a round, all turns together", commands: []string{
		"{bin} bench refill --capacity 512MiB --rounds 3 --turns 40 --json {json}",
		"{bin} bench refill --transport tcp --net rdma --capacity 512MiB --rounds 3 --turns 40 --json {json}",
	}, columns: strings.Fields("transport net capacity threads refill_of_copy populate_of_copy redy.alone_mops=redy_alone redy.share=redy_share redy.refill_bytes_per_second=bytes_per_second ssd.alone_mops=ssd_alone ssd.share=ssd_share ssd.refill_bytes_per_second=bytes_per_second")},
	{name: "sparse", statistic: "session and reads from all: medians of the sessions; move: of the moves; others, and of copy: medians of the moves' ratios; publish: the mean of the publications; the rest measured once", commands: []string{
		"{bin} bench cache --sparse --capacity 1TiB --servers 256 --transport shm --json {json}",
		"{bin} bench cache --sparse --capacity 1TiB --servers 256 --transport tcp --json {json}",
		"{bin} bench cache --sparse --capacity 1TiB --servers 256 --apart=false --transport shm --json {json}",
		"{bin} bench cache --sparse --capacity 1TiB --servers 256 --apart=false --transport tcp --json {json}",
	}, columns: strings.Fields("transport apart capacity_bytes=bytes servers create_s session_ms session_all_ms=reads_from_all_ms queue_pairs client_rss_bytes session_bytes publish_us move_ms others_mean_ratio others_p50_ratio others_p99_ratio others_p999_ratio others_mean_of_copy others_p50_of_copy others_p99_of_copy")},
	{name: "restart", statistic: "single starts; before: the mean of the time before the kill; seconds to 90: until the mean of half a second is 0.9 of that", commands: []string{
		"{bin} bench restart --json {json}",
	}, columns: strings.Fields("start round before_mops opened_s seconds_to_90 hit_redy")},
	{name: "open", statistic: "single openings, with nothing in the page cache; of disk: the bytes read over the opening's time, over the rate of reading as many alone", commands: []string{
		"{bin} bench open --records 250000000 --rounds 1 --json {json}",
		"{bin} bench open --records 10000000 --value-size 850 --rounds 1 --json {json}",
	}, columns: strings.Fields("after records value_size memory opened_s cpu_s index replayed bytes disk_bytes_per_second of_disk")},
	{name: "compare", statistic: ratiosOfRounds, commands: []string{
		"{bin} ycsb compare --devices redy,smb,ssd --threads 1,2 --rounds 5 --distributions uniform,zipfian --json {json}",
	}, columns: strings.Fields(ycsbColumns)},
	{name: "compare-read-cache", statistic: ratiosOfRounds, commands: []string{
		"{bin} ycsb compare --devices redy,ssd --threads 1,2 --rounds 5 --distributions zipfian --read-cache 0,0.5 --json {json}",
	}, columns: strings.Fields(ycsbColumns)},
	{name: "compare-peers", statistic: ratiosOfRounds, commands: []string{
		"{bin} ycsb compare --devices redy,ssd,pebble,badger,bbolt --records 10000000 --value-size 100 --threads 1,2 --rounds 5 --json {json}",
	}, columns: strings.Fields(ycsbColumns + " depth files_bytes disk_bytes/ops=disk_bytes_per_read killed")},
	{name: "compare-mixes", statistic: ratiosOfRounds + "; times pebble: of the faster of its rows", commands: []string{
		"{bin} ycsb compare --devices redy,ssd,pebble --mixes a,b,f,write --records 20000000 --threads 1,2 --rounds 3 --json {json}",
		"{bin} ycsb compare --devices redy,ssd,pebble --mixes a,b,f,write --records 5000000 --value-size 100 --threads 1,2 --rounds 3 --json {json}",
		"{bin} ycsb compare --devices redy,ssd,pebble --mixes a,b,f,write --records 1000000 --value-size 1KiB --threads 1,2 --rounds 3 --json {json}",
	}, columns: strings.Fields("device mix distribution value_size threads depth mops mops_min mops_max p50_us p99_us ratio_to_ssd=times_ssd ratio_to_pebble=times_pebble of_disk share_of_device=of_the_disk's_writes write_amplification space_amplification settle_s processors killed")},
	{name: "README-compare", from: "compare-read-cache", document: "README.md", picture: "docs/compare.svg", columns: strings.Fields(
		"device distribution threads read_cache mops mops_min mops_max p50_us p99_us ratio_to_ssd=times_ssd hit_memory hit_cache hit_redy hit_ssd of_disk"),
		sentence: "The SSD does {least of_disk} to {most of_disk} of the disk's own reads."},
	{name: "suite", statistic: "the round of median throughput", commands: []string{
		"{bin} ycsb suite --stores redykv,map,empty --operations 600000 --rounds 5 --json {json}",
	}, columns: strings.Fields("workload store threads ops=ops_a_second ops_least ops_most p999_us max_us failed")},
	{name: "server", statistic: "medians of the rounds, ratios too", commands: []string{
		"scripts/bench-server --bin {bin} --json {json}",
	}, columns: strings.Fields("op value connections pipeline redis.ops=redis redykv.ops=redykv ratio p99_ratio")},
	{name: "server-durable", statistic: "medians of the rounds, ratios too", commands: []string{
		"scripts/bench-server --durable --bin {bin} --json {json}",
	}, columns: strings.Fields("op value connections pipeline redis.ops=redis redykv.ops=redykv ratio p99_ratio")},
	{name: "paper", statistic: paperStatistic, commands: []string{
		"{bin} paper run fig3 fig7 fig8 fig11 fig12 fig13 fig14 fig18a fig18b fig18c fig18d fig18e fig18f fig18g fig18h fig19 fig20 stranded --scale machine --report-only --out {dir}",
		"mv {dir}/claims.jsonl {json}",
	}, columns: strings.Fields(paperColumns), sentence: paperSentence},
	{name: "paper-moves", statistic: paperStatistic, commands: []string{
		"{bin} paper run fig15 fig16 --scale machine --report-only --out {dir}",
		"mv {dir}/claims.jsonl {json}",
	}, columns: strings.Fields(paperColumns), sentence: paperSentence},
	{name: "slo", statistic: "kept: of each cache the mean of all slices after its warm-up; errors: medians of the SLOs, and their 95th percentiles; search: the mean", commands: []string{
		"{bin} slo check --min-kept 0 --record 64 --verdict {json}",
		"{bin} slo check --min-kept 0 --record 64 --net rdma --verdict {json}",
		"{bin} slo check --min-kept 0 --record 64 --transport tcp --capacity 64MiB --duration 800ms --verdict {json}",
	}, columns: strings.Fields("transport net record_bytes margin slos=SLOs kept model machine neighbour latency_kept throughput_kept latency_error throughput_error latency_error_p95 throughput_error_p95 margin_for_95=margin_that_allows_for_95_% margin_for_all=for_all search_us leaves=configurations")},
	{name: "slo-keep", statistic: "all windows of all caches from 10 s after the disturbance on; changes: the most of one cache", commands: []string{
		"{bin} slo keep --json {json}",
	}, columns: strings.Fields("disturbance loop before=kept_before windows kept share changes")},
	{name: "manager-scale", statistic: "one run; rates and processors: means over the phase; percentiles: of all its beats and calls", commands: []string{
		"{bin} bench manager --catalog memory --json {json}",
		"{bin} bench manager --catalog pebble --delay 5ms --json {json}",
		"{bin} bench manager --catalog pebble --delay 5ms --tokens --prices --json {json}",
		"{bin} bench manager --catalog pebble --delay 5ms --tokens --prices --watches --json {json}",
		"{bin} bench manager --catalog etcd --json {json}",
		"{bin} bench manager --catalog etcd --delay 5ms --json {json}",
	}, columns: strings.Fields("catalog phase caches beating cpu rss_bytes beats_per_s beat_p50_ms beat_p999_ms beats_failed registrations_per_s allocations_per_s allocate_p50_ms allocate_p99_ms refused failed told told_s restart_s takeover_s beats_back_s")},
	{name: "manager-aims", from: "manager-scale", aims: managerAims},
	{name: "outgrows", statistic: "each event once; before: the mean; least share: of the slowest second", commands: []string{
		"go test ./packaging/kubernetes -count 1 -run TestOutgrows -outgrows.memory 1024 -outgrows.json {json} -timeout 1h",
	}, columns: strings.Fields("what before=replies_a_second_before least=least_share took_s below_s whole_s failed wrong replies=replies_checked price=dollars_an_hour")},
}
