package builder

import (
	"sync/atomic"

	"airlift/bundle/builder/charts"
	"airlift/bundle/builder/events"
)

// A reporter reports what a build does, and counts what it downloads.
type reporter struct {
	events.Reporter
	fetched atomic.Int64 // bytes downloaded in this build, still compressed
}

// present reports content that does not have to be downloaded.
func (r *reporter) present(kind, name, source, from string, size int64, digest, note string) {
	r.Work(name, size).Done(note, events.DownloadFinished{Kind: kind, Name: name, Source: source, From: from, Size: size, Digest: digest})
}

// transfer begins the download of kind. size is 0 if it is not known yet.
func (r *reporter) transfer(kind, name, source string, size int64) *events.Transfer {
	return r.Transfer(events.DownloadStarted{Kind: kind, Name: name, Source: source, Size: size}, &r.fetched)
}

// watchCharts reports downloads of charts.
func (r *reporter) watchCharts(c *charts.Client) {
	c.Started = func(d charts.Download) {
		r.DownloadStarted(events.DownloadStarted{Kind: events.Chart, Name: chartName(d), Source: d.Source})
	}
	c.Finished = func(d charts.Download, size int64) {
		r.DownloadFinished(events.DownloadFinished{Kind: events.Chart, Name: chartName(d), Source: d.Source, From: events.Network, Size: size, Digest: d.Digest})
	}
}

// chartName names a chart in events, before its version is known: "ingress-nginx 4.13.2".
func chartName(d charts.Download) string {
	name := d.Name
	if name == "" {
		name = d.Source // a registry's
	}
	return name + " " + d.Wanted
}
