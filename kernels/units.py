"""What the attention kernels have in common."""

import numpy as np

UNIT = 64  # tokens whose keys and values lie together
# below every score; a difference of two of them is a number, unlike infinity's
LEAST = np.float32(-3e38)
