package main

import (
	"github.com/spf13/cobra"

	"airlift/builder"
	"airlift/builder/events"
	"airlift/internal/fault"
)

// The flag of bundle build that chooses how progress is shown, and its values.
const (
	progressFlag = "progress"
	progressText = "text"
	progressJSON = "json"
)

// chooseProgress sets where the progress of a build goes.
func (b *buildFlags) chooseProgress(cmd *cobra.Command, format string) error {
	switch format {
	case progressText:
		b.reporter = events.Text(cmd.ErrOrStderr())
	case progressJSON:
		b.reporter = events.JSON(cmd.OutOrStdout())
	default:
		return fault.New(fault.Usage, "unknown progress format %q", format).Hint("use --progress text or --progress json")
	}
	return nil
}

func resultEvent(r *builder.Result, lockPath string) *events.Result {
	e := &events.Result{Path: r.Path, Size: r.Size, SHA256: r.SHA256, UnpackedSize: r.UnpackedSize,
		KubernetesVersion: r.Manifest.KubernetesVersion, Downloaded: r.Downloaded,
		Components: len(r.Manifest.Components), Images: len(r.Manifest.Images), Manifests: len(r.Manifest.Manifests),
		Files: len(r.Manifest.Files), Units: len(r.Manifest.Units), Packages: len(r.Manifest.Packages), LeftOut: []string{},
		Provenance: r.Provenance, Signature: r.Signature, SBOMs: r.SBOMs, Lock: lockPath, Base: r.Base}
	for _, c := range r.LeftOut {
		e.LeftOut = append(e.LeftOut, c.Name+" "+c.Version)
	}
	return e
}

// errorEvent ends the stream of a command with --progress json that failed. cmd is the
// command that was called.
func errorEvent(cmd *cobra.Command, err error) {
	if err == nil || cmd == nil {
		return
	}
	if f := cmd.Flags().Lookup(progressFlag); f != nil && f.Value.String() == progressJSON {
		events.JSON(cmd.OutOrStdout()).Send(events.EventError, &events.Error{Message: err.Error(), Hint: fault.Hint(err), ExitCode: int(fault.ExitCode(err))})
	}
}
