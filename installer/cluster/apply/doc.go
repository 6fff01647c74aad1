// Package apply applies the site's manifests by server-side apply, records them in an inventory, and waits for their objects.
package apply
