#!/bin/busybox sh
# The first program of a machine: it runs the scripts that come over the port for commands, one after the other.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /var/run /var/lock /log /etc /sbin
/bin/busybox --install -s /bin
ln -s /bin/busybox /sbin/modprobe
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# All other modules are loaded by the kernel when somebody asks for what is in them, as on any machine.
for module in virtio_pci virtio_rng virtio_net virtio_console; do modprobe "$module"; done
echo 2 >/proc/sys/kernel/panic
ifconfig lo up
# Its number is that of the device on its bus.
exec 3<>"$(echo /dev/vport*p1)" || poweroff -f
while read -r size <&3; do
  head -c "$size" <&3 >/tmp/script
  /usr/local/bin/sh /tmp/script >/tmp/output 2>&1 </dev/null 3<&-
  echo "$? $(wc -c </tmp/output)" >&3
  cat /tmp/output >&3
done
poweroff -f
