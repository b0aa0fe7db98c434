// Package index is a store's index: a hash table in memory outside the heap, which leads
// from a key's hash to the newest record of the key's chain in the log. It is used by many
// sessions at once without locks.
//
// # Table
//
// A bucket is a cache line: seven entries and a link. An entry holds an address and a tag,
// which is some bits of the hash. All records whose keys share bucket and tag form one chain;
// the log links each record to the one before it. A full bucket links to an overflow bucket
// behind the table. Entries are added and changed by compare-and-swap and are never removed.
//
// The low bits of a hash choose the bucket. The tag begins with the bit next to them when
// the table has its first size. It stays where it is while the table grows, so that more
// and more of its bits also choose the bucket. Growing therefore does not change which
// keys share a chain.
//
// # Inserting
//
// Two sessions may insert the same tag into different places of a bucket. So an entry is
// first tentative, which hides it from all but inserters. Its inserter then searches the
// bucket for another entry of the tag, tentative or not, and if it finds one withdraws its
// own and starts again. Both may withdraw; both cannot stay.
//
// # Growing
//
// The table grows while it is in use: into a new table of twice the buckets, bucket by
// bucket, by one goroutine, the mover. The entries of bucket b of n go to buckets b and
// b+n of the new table, by the lowest bit of the tag that does not choose the bucket yet.
// Chains stay as they are.
//
//	old bucket    what the mover does                    what a session does there
//	entries       -                                      uses them
//	moving        replaces every entry by moving, the    uses what is not replaced yet; if it
//	              first one first, and keeps it          finds nothing, it tries again later
//	moved         fills the new buckets; stores moved    finds nothing; looks in the new table
//	              in the first place
//
// An entry that the mover has replaced does not change any more: every change compares with
// what was read. The exception is an inserter, which stores over its own tentative entry; the
// mover waits until no entry is tentative. The inserter must find every place as it was after
// its tentative entry was there, or withdraw: the first place, so that either the mover meets
// the tentative entry or the inserter meets the mover; and the others, since an entry that was
// replaced may have had the inserter's tag. A session that finds nothing looks at the first
// place afterwards: if it holds an entry, the mover had not begun when the session searched.
//
// An entry that was read before it was moved is as good as one that was read before a
// newer record was published: the records that it leads to may be updated in place, and a
// comparison with it fails.
//
// At the end the owner replaces the table. Once no session is left in an epoch in which
// the old table was visible, the owner frees it.
//
// # Copies
//
// A copy of the index is made while operations go on, and is fuzzy: an entry is as it was
// at some moment of the copying, or missing if it was inserted meanwhile. All records
// below the copy's Start were in the index before, so their entries are in the copy, or
// entries of newer records of their chains. What is missing is in the log from Start on,
// which recovery reads. Entries do not move while a copy is made: the owner does not let a
// table grow and be copied at the same time.
package index
