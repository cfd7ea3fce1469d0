package main

import (
	"context"
	"slices"
	"sync"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/rollback"
)

// watch reloads the configuration when one of its files changes, until ctx ends. The set of
// files may change with it.
func (r *daemon) watch(ctx context.Context) {
	var now *config.Config
	var stop func()
	for {
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
			return
		case next := <-r.follow:
			if now != nil && slices.Equal(now.Files, next.Files) && slices.Equal(now.Globs, next.Globs) {
				continue
			}
			if stop != nil {
				stop()
			}
			now, stop = next, r.watchFiles(next)
		}
	}
}

// watchFiles watches the files of a configuration. stop ends that and waits for its end.
func (r *daemon) watchFiles(cfg *config.Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	files := discovery.NewWatch(discovery.WatchConfig{Paths: cfg.Files, Globs: cfg.Globs})
	var watching sync.WaitGroup
	watching.Go(func() {
		r.changed() // they may have changed since they were read
		files.Run(ctx, r.changed)
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// changed reloads the configuration because its files have changed. The reload may replace the
// watch that has called changed; it continues then.
func (r *daemon) changed() {
	_, _ = r.load(context.Background(), rollback.Options{By: "watch"}, true, nil) // load logs it
}
