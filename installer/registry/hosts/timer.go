package hosts

import "airlift/installer/host"

// Timer lets a node follow its cluster every minute: the control planes, the registries of their images, and the images that
// every node is to have. Most runs change nothing, and then none is in the journal.
var Timer = host.Timer{
	Name:     "airlift-registry-node",
	About:    "Let containerd of this node ask the control planes for images",
	Schedule: "OnBootSec=15s\nOnUnitActiveSec=1min\nRandomizedDelaySec=10s\nAccuracySec=5s",
	Command:  "registry node",
	Quiet:    true,
}
