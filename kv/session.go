package kv

import "context"

type Store struct{}
type Session struct{}

func Open(opts Options) (*Store, error)                       { panic("soon") }
func (st *Store) NewSession() *Session                        { panic("soon") }
func (st *Store) Metrics() Metrics                            { panic("soon") }
func (st *Store) Commit(ctx context.Context) error            { panic("soon") }
func (st *Store) Close() error                                { panic("soon") }
func (s *Session) Read(key, dst []byte) ([]byte, error)       { panic("soon") }
func (s *Session) Upsert(key, value []byte) error             { panic("soon") }
func (s *Session) RMW(key []byte, modify Modifier) error      { panic("soon") }
func (s *Session) Delete(key []byte) error                    { panic("soon") }
func (s *Session) Do(ops []Op) error                          { panic("soon") }
func (s *Session) Submit(op *Op) (done bool, err error)       { panic("soon") }
func (s *Session) Poll(done []*Op) int                        { panic("soon") }
func (s *Session) Wait(ctx context.Context) error             { panic("soon") }
func (s *Session) Pending() int                               { panic("soon") }
func (s *Session) Close() error                               { panic("soon") }
