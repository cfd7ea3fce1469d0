package main

import (
	"context"
	"slices"
	"sync"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/generation"
)

// watch has the configuration read again when one of its files changes, until ctx ends.
// Which files those are may change with it.
func (r *running) watch(ctx context.Context) {
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

// watchFiles watches the files of a configuration until stop is called, which waits for
// that.
func (r *running) watchFiles(cfg *config.Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	files := discovery.NewWatch(discovery.WatchConfig{Paths: cfg.Files, Globs: cfg.Globs})
	var watching sync.WaitGroup
	watching.Go(func() {
		r.changed() // since they were read, and before they are watched
		files.Run(ctx, r.changed)
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// changed reads the configuration again because its files have changed. That goes on when
// others are watched meanwhile, as it may lead to.
func (r *running) changed() {
	_, _, _ = r.load(context.Background(), generation.Options{By: "watch"}, true) // it is logged
}
