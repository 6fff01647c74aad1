package reconfigure

import (
	"slices"

	"airlift/installer/config"
	"airlift/installer/secrets"
)

// keepKeys lets the API servers read the keys that Airlift makes, also if the user's document does not have the lines: only
// 'secrets' changes them. A configuration of the site replaces them if it can read all data, as any other one.
func keepKeys(own, stored *config.Cluster) {
	if _, others := config.LastArg(own.APIServer.ExtraArgs, encryptionFlag); secrets.IsUsed(stored) && !others {
		_ = secrets.Use(own) // it fails if the document has another volume there: then checkEncryption refuses it
	}
}

// keepOrder gives the components the stored order of what they have.
func keepOrder(own, stored *config.Cluster) {
	for _, c := range []struct{ own, stored *config.Component }{
		{&own.APIServer.Component, &stored.APIServer.Component}, {&own.ControllerManager, &stored.ControllerManager}, {&own.Scheduler, &stored.Scheduler},
	} {
		inOrder(c.own, c.stored)
	}
}

// inOrder gives a component the stored order of its arguments and volumes if it has the same ones: the document does not change for their order.
func inOrder(own, stored *config.Component) {
	last := func(a config.Arg) bool {
		value, _ := config.LastArg(stored.ExtraArgs, a.Name)
		is, _ := config.LastArg(own.ExtraArgs, a.Name)
		return value == is
	}
	if sameItems(own.ExtraArgs, stored.ExtraArgs) && !slices.ContainsFunc(own.ExtraArgs, func(a config.Arg) bool { return !last(a) }) {
		own.ExtraArgs = stored.ExtraArgs
	}
	if sameItems(own.ExtraVolumes, stored.ExtraVolumes) {
		own.ExtraVolumes = stored.ExtraVolumes
	}
}

// sameItems reports whether two lists have the same items, each as often.
func sameItems[T comparable](a, b []T) bool {
	left := slices.Clone(b)
	for _, item := range a {
		i := slices.Index(left, item)
		if i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	return len(left) == 0
}
