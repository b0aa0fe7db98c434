// Package manifesttest makes the objects that a manifest names for tests, byte by byte
// and without package manifest.
package manifesttest

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/redykv/redykv/device"
)

// Object returns a device that holds an object called "object", and its bytes. The object
// has one chunk for each piece of the input: an address and a length, of a byte each, and
// the chunk's bytes. All checksums are right.
func Object(t testing.TB, kind uint32, in []byte) (*device.Memory, []byte) {
	t.Helper()
	const endChunk = 3
	var data []byte
	number := uint64(0)
	chunk := func(kind uint32, addr int64, b []byte) {
		header := binary.LittleEndian.AppendUint32(nil, uint32(len(b)))
		header = binary.LittleEndian.AppendUint32(header, kind)
		header = binary.LittleEndian.AppendUint64(header, uint64(addr))
		sum := binary.LittleEndian.AppendUint64([]byte("object"), number)
		sum = append(append(sum, header...), b...)
		data = append(data, header...)
		data = binary.LittleEndian.AppendUint64(data, xxhash.Sum64(sum))
		data = append(data, b...)
		number++
	}
	for len(in) > 2 {
		n := min(int(in[1]), len(in)-2)
		if n > 0 {
			chunk(kind, int64(int8(in[0])), in[2:2+n])
		}
		in = in[2+n:]
	}
	chunk(endChunk, int64(number), nil)

	disk := device.NewMemory()
	w, err := disk.CreateObject("object")
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	return disk, data
}
