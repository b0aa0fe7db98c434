package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// outputFile is a file that appears whole when its content is known, or not at
// all. It is made before the work begins, so that a path that cannot be written
// to is found out at once.
type outputFile struct {
	path string
	file *os.File
	temp string // what file is named until it is complete; empty for a device
}

// openOutput makes the file ready. What is at path stays until commit; a path
// that is no regular file, such as a device, is written to directly.
func openOutput(path string) (*outputFile, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return nil, fmt.Errorf("output %s is a directory", path)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
		return &outputFile{path: path, file: f}, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err == nil {
		err = f.Chmod(0o644) // as any file that a command writes
	}
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", path, err)
	}
	return &outputFile{path: path, file: f, temp: f.Name()}, nil
}

// commit writes the content and gives the file its name. The file is closed
// afterwards, whatever happened.
func (o *outputFile) commit(write func(io.Writer) error) error {
	err := errors.Join(write(o.file), o.file.Close())
	if err != nil || o.temp == "" {
		return err
	}
	if err := os.Rename(o.temp, o.path); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	o.temp = ""
	return nil
}

// discard removes what commit has not named. It may be called in any case.
func (o *outputFile) discard() {
	_ = o.file.Close() // closed already after commit
	if o.temp != "" {
		_ = os.Remove(o.temp) // it is ours, and of no use to anybody
	}
}
