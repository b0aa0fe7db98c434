package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// outputFile is a file that is written as a whole or not at all. It is opened before the work
// begins, so that a path that cannot be written fails at once.
type outputFile struct {
	path string
	file *os.File
	temp string // name of file until commit; empty for a device
}

// openOutput makes the temporary file. The file at path stays until commit. A path that is no
// regular file, such as a device, is written directly.
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
		err = f.Chmod(0o644) // the usual mode
	}
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", path, err)
	}
	return &outputFile{path: path, file: f, temp: f.Name()}, nil
}

// commit writes the content and renames the file. It always closes the file.
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

// discard removes a file that was not committed. After commit it does nothing.
func (o *outputFile) discard() {
	_ = o.file.Close() // commit may have closed it
	if o.temp != "" {
		_ = os.Remove(o.temp)
	}
}
