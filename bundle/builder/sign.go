package builder

import (
	"context"
	"fmt"
	"os"

	"airlift/bundle"
	"airlift/bundle/events"
	"airlift/bundle/signature"
	"airlift/fault"
)

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
