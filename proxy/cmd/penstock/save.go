package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/rollback"
)

// saveFlag has a change of an endpoint be written to the file.
type saveFlag struct {
	Save bool `help:"Write it to the configuration file as well, with the permissions of this command's user, and reload."`
}

// change makes a change in the running process and, with --save, in the file.
func (s saveFlag) change(e *cli.Env, at *adminFlags, change *admin.EndpointChange) error {
	var done admin.EndpointChanged
	var saved string
	err := at.ask(e, "endpoint", func(ctx context.Context, client *admin.Client) (err error) {
		if s.Save {
			done, saved, err = saveChange(ctx, client, e.Environment(), at.Config, change)
			return err
		}
		done, err = client.ChangeEndpoint(ctx, change)
		return err
	})
	if err != nil {
		return err
	}
	if saved != "" {
		done.Unkept = ""
	}
	if err := writeChanged(e, change.Upstream, &done); err != nil || saved == "" {
		return err
	}
	_, err = fmt.Fprintf(e.Stdout, "saved in %s\n", display.Text(saved))
	return err
}

// unweighed is the weight of an endpoint that is added to the file without one.
const unweighed = -1

// saveChange makes a change in the file and in the running process, or in neither. It returns the file.
func saveChange(ctx context.Context, client *admin.Client, env config.Env, given *string, change *admin.EndpointChange) (done admin.EndpointChanged, saved string, err error) {
	path, err := savable(ctx, client, given)
	if err != nil {
		return done, "", err
	}
	was, err := endpointOf(ctx, client, change)
	if err != nil {
		return done, "", err
	}
	edit, err := editOf(change, &was)
	if err != nil {
		return done, "", notSaved(err)
	}
	edited, err := config.EditEndpoint(path, env, edit)
	if err != nil {
		return done, "", notSaved(err)
	}
	differs := !bytes.Equal(edited.Before, edited.After)
	if differs {
		if err := writeEdited(ctx, client, edited); err != nil {
			return done, "", err
		}
	}
	if differs && (edit.Add != nil || edit.Remove) {
		now, err := endpointOf(ctx, client, change)
		weight := 0
		if now.Endpoint != nil {
			weight = now.Weight
		}
		return admin.EndpointChanged{Endpoint: edit.Name(), From: was.value(change.What), To: now.value(change.What), Weight: weight, Taking: now.taking}, edited.Path, err
	}
	done, err = client.ChangeEndpoint(ctx, change) // ends a change by hand of the same line
	if differs && err == nil {
		done.From = was.value(change.What)
	}
	return done, edited.Path, err
}

func notSaved(err error) error { return fmt.Errorf("nothing was changed: %w", err) }

// savable returns the path of the file in force, if a reload of it now would change nothing else.
func savable(ctx context.Context, client *admin.Client, given *string) (string, error) {
	plan, err := client.Plan(ctx, "")
	if err != nil {
		return "", notSaved(err)
	}
	generations, err := client.Generations(ctx)
	if err != nil {
		return "", notSaved(err)
	}
	if given != nil {
		if abs, err := filepath.Abs(*given); err == nil && abs != plan.Path && !sameFile(abs, plan.Path) {
			return "", fmt.Errorf("nothing was changed: the process has the configuration %s, not %s: write --config %[1]s", plan.Path, abs)
		}
	}
	switch {
	case generations.Pending != nil:
		return "", fmt.Errorf("nothing was changed: generation %d waits to be confirmed: run penstock confirm or penstock rollback first", generations.Pending.Generation)
	case len(plan.Changes) > 0:
		return "", fmt.Errorf("nothing was changed: %s has other changes that are not in force (%s): reload first, or leave --save out", plan.Path, plan.Changes[0].What)
	}
	return plan.Path, nil
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// writeEdited replaces a file and has the process reload. If that is refused the file is as it was.
func writeEdited(ctx context.Context, client *admin.Client, e *config.Edited) error {
	switch now, err := os.ReadFile(e.Path); {
	case err != nil:
		return notSaved(err)
	case !bytes.Equal(now, e.Before):
		return fmt.Errorf("nothing was changed: %s has changed meanwhile: try again", e.Path)
	}
	if err := replaceFile(e.Path, e.After); err != nil {
		return notSaved(err)
	}
	_, err := client.Reload(ctx, rollback.Options{})
	if refused := (*admin.Refusal)(nil); errors.As(err, &refused) {
		if back := replaceFile(e.Path, e.Before); back != nil {
			return fmt.Errorf("%w; %s has the change, since it cannot be written back: %w", err, e.Path, back)
		}
		return fmt.Errorf("the reload was refused, and %s is as it was: %w", e.Path, err)
	}
	if err != nil {
		return fmt.Errorf("%s has the change, and whether it is in force is not known: %w", e.Path, err)
	}
	return nil
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
