// Package manifests reads Kubernetes objects on the connected side, finds the images that
// they need, and checks that nothing will be pulled on an isolated host.
//
// The usual order of calls:
//
//	objects, err := manifests.Read("site/app")       // a file, a directory, a kustomization
//	images, err := manifests.Images(objects)         // what the bundle must contain
//	maybe := manifests.Maybe(objects)                // images that an operator may use later
//	changes := manifests.SetPullPolicy(objects)      // Always becomes IfNotPresent
//	problems := manifests.Check(objects, references) // must be empty, except those with Maybe
//	yaml, err := manifests.Encode(objects)           // the entry of the bundle
//
// Objects stay in the order in which they were read. No function uses the network.
package manifests
