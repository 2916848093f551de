"""What PCs without internet need to install deskgrid, or to update it, in one archive."""
