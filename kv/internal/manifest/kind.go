package manifest

import "fmt"

// Kind is the kind of a checkpoint: see kv.CheckpointKind.
type Kind uint8

const (
	FoldOver Kind = iota
	Snapshot
	Incremental
	Index

	Kinds
)

var kindNames = [Kinds]string{"fold-over", "snapshot", "incremental", "index"}

func (k Kind) String() string {
	if k < Kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("CheckpointKind(%d)", uint8(k))
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	for i, name := range kindNames {
		if name == string(text) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("kv: unknown kind of checkpoint %q", text)
}
