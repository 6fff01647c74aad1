package builder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"airlift/bundle"
	"airlift/bundle/events"
	"airlift/bundle/signature"
	"airlift/fault"
)

// removeSignature removes the signature of the bundle that is about to be replaced.
func (o *output) removeSignature() error {
	path := signature.Path(o.Output)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing the earlier signature: %w", err)
	}
	if o.Key == nil {
		o.report.Progress.Printf("%s was removed: it signed the earlier file. To sign the new one: bundle sign %s --key KEY\n", path, o.Output)
	}
	return nil
}

// sign prepares the signature of the written bundle, if there is a key.
func (o *output) sign(ctx context.Context, f *bundle.File) error {
	if o.Key == nil {
		return nil
	}
	o.report.Events.Phase(events.Sign)
	item := o.report.Progress.Item("signing "+o.Output, f.Size())
	text, _, err := signature.Of(ctx, f, *o.Key, item.Add)
	if err == nil {
		err = o.prepare("signature", signature.Path(o.Output), text)
	}
	if err != nil {
		item.Failed()
		return fmt.Errorf("signing the bundle: %w", err)
	}
	item.Done("signed, key " + o.Key.ID())
	return nil
}

// checkSignature finds an unusable path before the downloads start.
func checkSignature(output string) error {
	path := signature.Path(output)
	if i, err := os.Lstat(path); err == nil && !i.Mode().IsRegular() {
		return fault.New(fault.Usage, "remove it, or choose another --output", "cannot write the signature: %q is not a regular file", path)
	}
	return nil
}
