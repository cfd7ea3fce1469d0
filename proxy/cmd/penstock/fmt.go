package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/file"
)

type fmtCmd struct {
	configFiles
	Write bool `help:"Write the result to the file, instead of printing it."`
	Check bool `help:"Print nothing; exit code 1 if the file is not formatted."`
}

// Run formats files, without the files that they include. Any YAML is formatted; check reports
// invalid values.
func (c *fmtCmd) Run(e *cli.Env) error {
	files, err := c.given("fmt")
	switch {
	case err != nil:
		return err
	case c.Write && c.Check:
		return cli.Usagef("fmt: --write and --check exclude each other (see: penstock fmt --help)")
	case len(files) > 1 && !c.Write && !c.Check:
		return cli.Usagef("fmt: the text of one file is printed: write one of %s, or --write or --check (see: penstock fmt --help)", strings.Join(files, ", "))
	}
	return c.each(e, "fmt", func(file string) error { return c.format(e, file) })
}

// format is Run of one file.
func (c *fmtCmd) format(e *cli.Env, file string) error {
	text, formatted, problems := config.Format(file)
	if err := reportProblems(e, problems); err != nil {
		return err
	}
	switch {
	case !c.Write && !c.Check:
		_, err := e.Stdout.Write(formatted)
		return err
	case bytes.Equal(text, formatted):
		return nil
	case c.Check:
		return fmt.Errorf("%s is not formatted: write penstock fmt --write %[1]s", file)
	}
	return replaceFile(file, formatted)
}

// replaceFile replaces the contents of a file atomically, and keeps its mode and its owner. The contents are
// on the disk when it returns nil.
func replaceFile(path string, contents []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	p, err := file.At(path)
	if err != nil {
		return err
	}
	err = p.Replace(contents, func(f *os.File) error {
		if err := keepOwner(f, info); err != nil {
			return err
		}
		return f.Chmod(info.Mode().Perm())
	})
	return errors.Join(err, p.Close())
}

// keepOwner gives a file the owner and the group of another one.
func keepOwner(f *os.File, of fs.FileInfo) error {
	was, ok := of.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if is := info.Sys().(*syscall.Stat_t); is.Uid == was.Uid && is.Gid == was.Gid {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}
